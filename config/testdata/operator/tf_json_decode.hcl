target "web" {
  for_each = json_decode(file("data/hosts.json"))
  address  = each.value
}
