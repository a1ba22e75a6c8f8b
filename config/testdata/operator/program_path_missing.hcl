target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    exec { command = ["/usr/local/bin/no-such-check", "--fast"] }
  }
}
