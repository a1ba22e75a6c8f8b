target "web" {
  for_each = [{ name = "a", ip = "10.0.0.7" }, { name = "b", ip = "10.0.0.8" }]
  address  = each.value.ip
}
