target "web" {
  unit "web@.service" {}
  probe "readiness" {
    http { port = 80 }
  }
}
