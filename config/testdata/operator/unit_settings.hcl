target "web" {
  unit "nginx.service" {
    users   = true
    restart = "always"
  }
  probe "readiness" {
    http { port = 80 }
  }
}
