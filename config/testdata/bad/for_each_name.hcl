target "web" {
  for_each = toset([join("", formatlist("%0999d", [1]))])
  address  = "10.0.0.1"
}
