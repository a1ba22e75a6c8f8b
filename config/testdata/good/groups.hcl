engine {
  metric_labels = ["taem"]
}

target "web" {
  for_each = { a = "10.0.0.1", b = "10.0.0.2" }
  address  = each.value
  labels   = { team = "shop" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "web" {
  members   = ["web[*]"]
  min_ready = "50%"
}

group "shop" {
  match     = ["team=shop"]
  min_ready = 2
}
