target "web" {
  probe "readiness" "http" {
    http { port = 80 }
  }
  probe "readiness" "tcp" {
    tcp { port = 80 }
  }
  probe "readiness" "icmp" {
    icmp {}
  }
}
