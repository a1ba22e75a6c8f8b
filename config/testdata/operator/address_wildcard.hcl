target "web" {
  address = "*.example.com"
}
