target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    http {
      scheme     = "ftp"
      body_regex = "("
    }
  }
  probe "liveness" {
    http {
      tls {
        verify  = "maybe"
        ca_file = "missing.pem"
      }
    }
  }
  probe "startup" {
    http {
      tls {
        ca_file = "missing.pem"
      }
    }
  }
}
