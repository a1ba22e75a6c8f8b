target "web" {
  probe "readiness" {
    exec { command = ["true"] }
  }
}
locals {
  a = sensitive(env("SONDE_TEST_ABSENT"))
  b = sensitive(trimspace(file("absent.token")))
  c = sensitive(file("absent-${env("SONDE_TEST_ABSENT", "hunter2")}"))
}
