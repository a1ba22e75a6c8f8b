target "web" {
  address = "10.0.0.1"
  ports = {
    http  = 80
    https = 70000
    dns   = "domain"
    "53"  = 53
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}
