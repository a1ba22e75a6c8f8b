target "web" {
  for_each = jsondecode("null")
  address  = each.value
}
