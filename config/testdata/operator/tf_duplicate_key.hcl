target "web" {
  for_each = { for h in ["a", "b", "a"] : h => "10.0.0.7" }
  address  = each.value
}
