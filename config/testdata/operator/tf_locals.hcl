locals { port = 80 }
target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = locals.port }
  }
}
