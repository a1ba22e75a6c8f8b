target "my web:1" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
