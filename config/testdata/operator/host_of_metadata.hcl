target "web" {
  address = "10.0.0.1"
  probe "readiness" "http" {
    http {
      port = 80
      host = "169.254.169.254"
    }
  }
  probe "readiness" "tcp" {
    tcp {
      port = 80
      host = "metadata.google.internal"
    }
  }
}
