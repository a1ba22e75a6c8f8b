defaults {
  success_threshold = 2
}

target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
  probe "liveness" {
    tcp { port = 80 }
  }
}
