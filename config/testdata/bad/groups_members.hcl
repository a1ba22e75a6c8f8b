target "web" {
  for_each = { a = "10.0.0.1", b = "10.0.0.2" }
  address  = each.value
  labels   = { team = "shop" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "db" {
  address = "10.0.0.3"
  probe "readiness" {
    tcp { port = 5432 }
  }
}

group "too_many" {
  members   = ["web[*]"]
  min_ready = 3
}

group "team" {
  match = ["team=shopp"]
}

group "label" {
  match = ["taem=shop"]
}

group "both" {
  members = ["db"]
  match   = ["team=shop"]
}
