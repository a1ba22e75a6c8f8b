target "web" {
  address = "10.0.0.7"
  http { port = 80 }
}
