target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port   = 80
      method = "GET /health HTTP/1.1"
    }
  }
}
