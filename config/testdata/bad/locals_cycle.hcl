locals {
  a = local.b + 1
  b = "${local.c}!"
  c = [local.a]

  self  = local.self
  other = local.nothing
  fine  = 1
}

locals {
  fine = 2
}
