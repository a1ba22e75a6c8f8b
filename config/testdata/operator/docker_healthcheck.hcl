target "web" {
  address = "10.0.0.7"
  healthcheck {
    test     = ["CMD", "curl", "-f", "http://localhost/"]
    interval = "30s"
  }
}
