target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp {
      port       = 80
      send_hex   = "0x50"
      expect_hex = "504"
    }
  }
}
