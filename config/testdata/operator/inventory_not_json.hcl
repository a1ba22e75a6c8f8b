target "web" {
  for_each = toset(jsondecode(file("data/hosts.txt")))
  address  = each.value
}
