target "web" {
  unit "nginx.service" {}
  container "web" {}
  probe "readiness" {
    http { port = 80 }
  }
}
