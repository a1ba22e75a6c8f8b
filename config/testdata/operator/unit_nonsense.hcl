target "web" {
  unit "/usr/sbin/nginx.service" {}
  probe "readiness" {
    http { port = 80 }
  }
}
