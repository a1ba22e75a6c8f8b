target "web" {
  address = "10.0.0.7"
  ports   = ["8080:80"]
  probe "readiness" {
    tcp { port = 80 }
  }
}
