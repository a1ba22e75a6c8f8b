target "web" {
  address = "10.0.0.0/24"
}
