target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    exec { command = "pg_isready -U postgres" }
  }
}
