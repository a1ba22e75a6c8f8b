target "web" {
  unit {}
  probe "readiness" {
    http { port = 80 }
  }
}
