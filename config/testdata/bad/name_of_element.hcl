locals {
  hosts = {
    a = { team = "shop", host = "10.0.0.1" }
    b = { team = "shop", host = "10.0.0.2" }
    c = { team = "", host = "10.0.0.3" }
  }
}

variable "secret" {
  default   = "hunter2"
  sensitive = true
}

target "same" {
  for_each = local.hosts
  name     = "same/${each.value.host == "10.0.0.3" ? "c" : each.value.team}"
  address  = each.value.host
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "empty" {
  for_each = local.hosts
  name     = each.value.team
  address  = each.value.host
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "twice" {
  for_each = toset(["c"])
  name     = "same/${each.key}"
  address  = "10.0.0.9"
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "secret" {
  for_each = toset(["a"])
  name     = "${var.secret}/${each.key}"
  address  = "10.0.0.9"
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "list" {
  for_each = toset(["a"])
  name     = ["x", each.key]
  address  = "10.0.0.9"
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "typo" {
  for_each = toset([])
  name     = "x/${each.vlaue}"
  address  = "10.0.0.9"
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "alone" {
  name    = "shop/alone"
  address = "10.0.0.9"
  probe "readiness" {
    tcp { port = 80 }
  }
}
