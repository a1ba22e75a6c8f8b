target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    http {
      path   = "/"
      schema = "https"
      tls {
        ca_fil = "ca.pem"
      }
    }
  }
}
