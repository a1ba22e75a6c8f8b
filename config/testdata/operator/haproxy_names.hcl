target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
    inter = "2s"
    rise  = 2
    fall  = 3
  }
}
