target "web" {
  address = "10.0.0.7"
  probe "liveness" {
    http { port = 80 }
  }
}
