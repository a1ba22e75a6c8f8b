target "web" {
  address = "0.0.0.0"
  probe "readiness" {
    tcp { port = 80 }
  }
}
