target "web" {
  for_each = { a = { ip = "10.0.0.7", port = 80 } }
  address  = each.value.ip
  probe "readiness" {
    tcp { port = each.value.prot }
  }
}
