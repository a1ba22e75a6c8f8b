engine {
  metric_labels = ["team"]
}

defaults {
  period = "5s"
  labels = { site = "north", team = "ops", empty = "" }
}

locals {
  hosts = {
    a = { team = "shop", host = "10.0.0.1", tier = null }
    b = { team = "pay", host = "10.0.0.2", tier = "canary" }
  }
}

target "hosts" {
  for_each = local.hosts
  name     = "${each.value.team}/${each.key}"
  address  = each.value.host
  labels   = { team = each.value.team, tier = each.value.tier }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "db" {
  address = "10.0.0.9"
  labels  = { site = "", rack = 7 }
  probe "readiness" {
    tcp { port = 5432 }
  }
}

target "worker" {
  labels = { team = "shop" }
  process { command = ["worker"] }
}
