target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      unix_socket = "/run/web.sock"
      port        = 80
    }
  }
}
