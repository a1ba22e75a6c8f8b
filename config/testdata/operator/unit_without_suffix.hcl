target "web" {
  unit "nginx" {}
  probe "readiness" {
    http { port = 80 }
  }
}
