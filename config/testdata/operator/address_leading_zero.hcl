target "web" {
  address = "010.000.000.007"
  probe "readiness" {
    tcp { port = 80 }
  }
}
