target "web" {
  container "shop/web" {}
  probe "readiness" {
    http { port = 80 }
  }
}
