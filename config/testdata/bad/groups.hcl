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

group "names" {
  members = ["db", "web", "dbb", "cache-*", "web[*]"]
}

group "none" {
}

group "syntax" {
  match = ["team == shop"]
}

group "map" {
  match = { team = "shop" }
}

group "share" {
  members   = ["*"]
  min_ready = "150%"
}

group "zero" {
  members   = ["*"]
  min_ready = 0
}

group "text" {
  member    = "web"
  min_ready = "half"
}

group "names" {
  members = ["*"]
}

group "" {
  members = ["*"]
}
