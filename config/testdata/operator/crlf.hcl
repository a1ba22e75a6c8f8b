target "web" {
  address = "10.0.0.7"
  timeot  = "1s"
}
