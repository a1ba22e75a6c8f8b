target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port = 80
      basic_auth {
        username = "sonde"
        password = "hunter2"
      }
    }
  }
}
