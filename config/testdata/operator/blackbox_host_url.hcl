target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      host = "https://shop.example/healthz"
      port = 443
    }
  }
}
