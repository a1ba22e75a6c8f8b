target "web" {
  image   = "nginx:1.27"
  address = "10.0.0.7"
}
