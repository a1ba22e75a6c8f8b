target "web" {
  probe "readiness" {
    tcp { port = 80 }
  }
}
