locals {
  ports  = tomap({ http = 80 })
  a      = local.ports.htpp
  b      = local.ports["htpp"]
  c      = local
  d      = { x = { yy = 1 } }
  e      = local.d.x.y
  f      = [for p in local.ports : p.q]
  g      = local.d["z"]
  h      = local.ports.http.tcp
}
