target "web" {
  container "web" {
    env  = { LEVEL = "3" }
    pull = "always"
  }
  probe "readiness" {
    http { port = 80 }
  }
}
