target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp {
      host = "10.0.0"
      port = 80
    }
  }
}
