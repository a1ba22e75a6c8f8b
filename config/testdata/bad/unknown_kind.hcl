target "web" {
  address = "10.0.0.1"
  probe "rediness" {
    tcp { port = 80 }
  }
  probe "health" {
    tcp { port = 80 }
  }
}
