target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
    interval     = "30s"
    retries      = 3
    start_period = "5s"
  }
}
