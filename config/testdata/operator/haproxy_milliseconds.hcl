target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
    timeout = 2000
    period  = "5000"
  }
}
