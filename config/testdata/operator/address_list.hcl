target "web" {
  address = "10.0.0.7,10.0.0.8"
}
