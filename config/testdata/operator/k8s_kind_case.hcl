target "web" {
  address = "10.0.0.7"
  probe "Readiness" {
    tcp { port = 80 }
  }
}
