target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port                            = 80
      valid_status_codes              = [200, 204]
      fail_if_body_not_matches_regexp = ["ok"]
      preferred_ip_protocol           = "ip4"
    }
  }
}
