target "web" {
  for_each = toset(["a"])
  address  = each.key
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "web[\"a\"]" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
