variable "hosts" {
  type = set(string)
}

target "web" {
  for_each = var.hosts
  address  = each.key
  probe "readiness" {
    tcp { port = 80 }
  }
}
