target {
  name    = "web"
  address = "10.0.0.7"
}
