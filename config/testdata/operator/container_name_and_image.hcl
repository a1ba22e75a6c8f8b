engine { state = "/var/lib/sonde/state" }
target "web" {
  container "web" { image = "nginx" }
  probe "readiness" {
    http { port = 80 }
  }
}
