target "web" {
  container "web" "app" {}
  probe "readiness" {
    http { port = 80 }
  }
}
