target "web" {
  for_each = toset(["10.0.0.7", "10.0.0.8"])
  address  = each.value
  probe "liveness" {
    http { port = 80 }
  }
}
