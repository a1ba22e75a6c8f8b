target "web" {
  address = "10.0.0.7"
  ports   = { http = "8080-8090" }
  probe "readiness" {
    tcp { port = "http" }
  }
}
