target "web" {
  address = "10.0.0.1"
  probe "readiness" "decimal" {
    http {
      port     = 80
      max_body = "10MB"
    }
  }
  probe "readiness" "bare" {
    http {
      port     = 80
      max_body = 10
    }
  }
  probe "readiness" "often" {
    tcp { port = 80 }
    period = "1 ms"
  }
}
