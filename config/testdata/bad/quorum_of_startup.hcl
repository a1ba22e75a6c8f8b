target "web" {
  address = "10.0.0.1"
  probe "startup" {
    http { port = "80" }
    quorum {}
  }
}
