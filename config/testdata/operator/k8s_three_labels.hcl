target "web" {
  address = "10.0.0.7"
  probe "readiness" "web" "http" {
    tcp { port = 80 }
  }
}
