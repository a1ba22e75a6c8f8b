target "web" {
  container { image = "nginx" }
  probe "readiness" {
    http { port = 80 }
  }
}
