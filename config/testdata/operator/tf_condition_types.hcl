target "web" {
  for_each = true ? toset(["a"]) : {}
  address  = "10.0.0.7"
}
