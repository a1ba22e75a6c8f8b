target "web" {
  container {}
  probe "readiness" {
    http { port = 80 }
  }
}
