target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      path = "http://shop.example:8080/healthz?full=1"
      port = 80
    }
  }
}
