target "web" {
  address = "10.0.0.7"
  probe "readiness" "ping" {
    icmp { source_address = "::1" }
  }
  probe "readiness" "connect" {
    tcp {
      port           = 80
      source_address = "fd00::1"
    }
  }
  probe "readiness" "page" {
    http {
      host           = "fd00::7"
      port           = 80
      source_address = "10.0.0.1"
    }
  }
}
