target "t" {
  address = "10.0.0.7"

  probe "readiness" {
    tcp { port = 80 }
  }
}

probe_module "none" {
}

probe_module "twice" {
  http {}
  tcp {}
}

probe_module "twice" {
  http {}
}

probe_module "" {
  http {}
}

probe_module "exec" {
  exec { command = ["true"] }
}

probe_module "unknown" {
  allowed = ["a"]
  htp {}
}

probe_module "elsewhere" {
  tcp { host = "10.0.0.8" }
}

probe_module "values" {
  timeout = "2h"
  allow   = ["ok", "bad/one"]
  http { port = 70000 }
}

probe_module "zero" {
  timeout = 0
  http { status = ["abc"] }
}
