target "web" {
  address = "10.0.0.1"
  ports { http = 80 }
  probe = {}
}
