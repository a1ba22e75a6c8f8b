variable "list" { default = ["a", "b"] }

target "list" {
  for_each = var.list
  address  = each.key
}
target "number" {
  for_each = 3
  address  = each.key
}
target "null" {
  for_each = null
  address  = each.key
}
target "set" {
  for_each = toset([{ a = 1 }])
  address  = each.key
}
target "literal" {
  for_each = ["a", "b"]
  address  = each.key
}
