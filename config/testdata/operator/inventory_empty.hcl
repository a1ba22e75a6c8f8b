target "web" {
  for_each = toset(jsondecode("[]"))
  address  = each.value
  probe "readiness" {
    tcp { port = 80 }
  }
}
