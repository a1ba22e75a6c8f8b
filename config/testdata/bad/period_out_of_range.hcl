target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    period = "1ms"
    initial_delay = "-1s"
  }
}
