target "web" {
  address = "10.0.0.1"
  probe "liveness" {
    tcp { port = 80 }
    success_threshold = 2
  }
  probe "startup" {
    tcp { port = 80 }
    success_threshold = 3
  }
}
