target "web" {
  for_each = "10.0.0.7,10.0.0.8"
  address  = each.value
}
