target "web" {
  for_each = { a = "10.0.0.1", b = "10.0.0.2:80", c = "10.0.0.3:80" }
  address  = each.value
  probe "readiness" {
    tcp { port = 80 }
  }
}
