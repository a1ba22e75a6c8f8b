service {
  name = "web"
  check {
    http     = "http://localhost/health"
    interval = "10s"
  }
}
