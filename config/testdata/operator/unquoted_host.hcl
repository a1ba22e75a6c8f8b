target "web" {
  address = web.example.com
}
