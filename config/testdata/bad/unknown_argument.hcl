target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "1s"
    timeot    = "1s"
  }
}
