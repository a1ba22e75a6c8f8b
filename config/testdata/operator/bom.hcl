target "web" {
  addres = "10.0.0.7"
}
