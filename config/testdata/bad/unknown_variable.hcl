variable "hosts" {
  default = ["10.0.0.1"]
}

locals {
  port = 80
}

target "web" {
  for_each = toset(var.hostz)
  address  = each.value
}

target "db" {
  address = hosts
  ports   = { http = local.prot, sql = var.sql }
}

target "cache" {
  address = each.value
}

target "queue" {
  for_each = { a = { ip = "10.0.0.2" } }
  address  = each.valeu.ip
}

target "mail" {
  for_each = { a = { ip = "10.0.0.2" } }
  address  = each.value.ipp
}
