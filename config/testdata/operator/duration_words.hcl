target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
    period        = "5 minutes"
    timeout       = "1,5s"
    initial_delay = "2 days"
  }
}
