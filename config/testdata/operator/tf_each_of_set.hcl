target "web" {
  for_each = toset(["10.0.0.7"])
  address  = each.value.ip
}
