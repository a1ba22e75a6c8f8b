target "web" {
  address = "10.0.0.1"
  ports = { http = 80, metrics = 9000 }
  probe "readiness" {
    tcp { port = "htpp" }
  }
  probe "liveness" {
    tcp { port = "postgres" }
  }
}
