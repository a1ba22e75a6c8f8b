locals { hosts = yamldecode(file("data/tab.yaml")) }
target "a" {
  for_each = { for h in csvdecode(file("data/ragged.csv")) : h.name => h }
  address  = each.value.ip
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "b" {
  for_each = { for h in csvdecode(file("data/semicolons.csv")) : h.name => h }
  address  = each.value.ip
  probe "readiness" {
    tcp { port = 80 }
  }
}
