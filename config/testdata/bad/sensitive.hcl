variable "password" {
  sensitive = true
  default   = "hunter2"
}
variable "pin" {
  sensitive = true
  type      = number
  default   = "hunter3"
}
variable "settings" {
  sensitive = true
  default   = { user = "hunter4" }
}
locals {
  a = jsondecode(var.password)
  b = tonumber(var.password)
  c = var.settings.usr
  d = jsondecode(sensitive("hunter5"))
  e = var.password ? 1 : 2
  f = { (var.password) = 1 }
  g = regex("(", var.password)
}
target "web" {
  for_each = toset([var.password])
  address  = each.key
}
target "db" {
  address = "${var.password}:80"
  ports   = { (var.password) = 80 }
  probe "readiness" {
    http {
      body_regex = "(${var.password}"
    }
    period   = var.password
    on_error = var.password
  }
  probe "liveness" {
    tcp {
      port  = 80
      token = "h"
    }
  }
  dynamic "probe" {
    for_each = ["a"]
    labels   = ["startup", var.password]
    content {
      tcp { port = var.password }
    }
  }
}
