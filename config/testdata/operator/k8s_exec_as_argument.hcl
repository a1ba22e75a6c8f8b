target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    exec = { command = ["cat", "/tmp/healthy"] }
  }
}
