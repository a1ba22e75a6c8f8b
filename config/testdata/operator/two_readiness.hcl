target "web" {
  address = "10.0.0.7"
  probe "readiness" "http" {
    http { port = 80 }
  }
  probe "readiness" "http" {
    http { port = 81 }
  }
}
