target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    period = "0s"
    timeout = "0"
    failure_threshold = 0
  }
}
