target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port   = 443
      scheme = "https"
      tls { ca_file = "/etc/ssl/no-such-ca.pem" }
    }
  }
}
