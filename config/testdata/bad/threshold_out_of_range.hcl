target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    failure_threshold = -1
    success_threshold = 99999999999
  }
}
