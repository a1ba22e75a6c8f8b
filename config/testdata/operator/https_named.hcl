target "web" {
  address = "10.0.0.1"
  ports   = { https = 8443 }
  probe "readiness" "named" {
    http { port = "https" }
  }
  probe "readiness" "other" {
    http { port = 8443 }
  }
  probe "readiness" "said" {
    http {
      port   = 8443
      scheme = "http"
    }
  }
}
