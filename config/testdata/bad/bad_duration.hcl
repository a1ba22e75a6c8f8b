target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    period        = "10 s"
    timeout       = "1"
    initial_delay = "2w"
  }
}
