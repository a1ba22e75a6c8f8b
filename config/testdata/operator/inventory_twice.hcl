locals { hosts = toset(["10.0.0.7", "10.0.0.8", "10.0.0.9"]) }
target "web" {
  for_each = local.hosts
  address  = each.value
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "web" {
  for_each = local.hosts
  address  = each.value
  probe "liveness" {
    tcp { port = 81 }
  }
}
