target "café" {
  address = "10.0.0.7"
}
