target "web" {
  for_each = { a = "10.0.0.1", b = "10.0.0.2", c = "10.0.0.3" }
  address  = each.value
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "web" {
  members       = ["web[*]"]
  min_ready     = "50%"
  hold_restarts = true
}

group "all" {
  members       = ["web[*]"]
  min_ready     = "80%"
  hold_restarts = true
}

group "one" {
  members       = ["web[\"a\"]"]
  hold_restarts = true
}

group "off" {
  members       = ["web[*]"]
  min_ready     = 3
  hold_restarts = false
}
