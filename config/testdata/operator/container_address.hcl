target "web" {
  address = "172.17.0.2"
  container "web" {}
  probe "readiness" {
    http { port = 80 }
  }
}
