target "web" {
  address = "10.0.0.1:99999"
}
