target "web" {
  count   = 3
  address = "10.0.0.${count.index}"
}
