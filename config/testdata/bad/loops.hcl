target "b" {
  for_each = {}
  adress   = each.value
  probe "readiness" {
    tcp {
      port = each.key
      prt  = 1
    }
    period = 5
  }
}
