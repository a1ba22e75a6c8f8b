target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    period = "1s"
  }
}
