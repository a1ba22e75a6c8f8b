target "web" {
  address = "10.0.0.1"
  probe "readiness" "dns" {
    dns { name = "example.com" }
  }
  probe "readiness" "ldap" {
    ldap { base = "dc=example" }
  }
}
