target "web" {
  address = "bücher.example"
}
