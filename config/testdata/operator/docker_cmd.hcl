target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    exec { command = ["CMD-SHELL", "curl -f http://localhost/ || exit 1"] }
  }
}
