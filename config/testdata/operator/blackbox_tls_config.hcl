target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port   = 443
      scheme = "https"
      tls_config {
        insecure_skip_verify = true
      }
    }
  }
}
