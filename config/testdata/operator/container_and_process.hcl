target "web" {
  container "web" {}
  process { command = ["/bin/true"] }
  probe "readiness" {
    http { port = 80 }
  }
}
