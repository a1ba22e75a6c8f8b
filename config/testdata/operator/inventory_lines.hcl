target "web" {
  for_each = toset(split("\n", file("data/hosts.txt")))
  address  = each.value
  probe "readiness" {
    tcp { port = 80 }
  }
}
