target "web" {
  unit "nginx.socket" {}
  probe "readiness" {
    http { port = 80 }
  }
}
