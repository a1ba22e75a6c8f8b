target "web" {
  address = "300.1.2.3"
  probe "readiness" {
    tcp { port = 80 }
  }
}
