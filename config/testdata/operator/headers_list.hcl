target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    http {
      port    = 80
      headers = ["X-Team: shop"]
    }
  }
}
