target "web" {
  unit "nginx.service" {}
  stop_signal = "SIGQUIT"
  probe "readiness" {
    http { port = 80 }
  }
}
