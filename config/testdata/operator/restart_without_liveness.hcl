target "web" {
  address = "10.0.0.7"
  restart { command = ["true"] }
  probe "readiness" {
    http { port = 80 }
  }
}
