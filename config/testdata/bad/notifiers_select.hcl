target "web" {
  address = "127.0.0.1"
  labels  = { team = "shop" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "db" {
  for_each = { a = "10.0.0.1", b = "10.0.0.2" }
  address  = each.value
  probe "readiness" {
    tcp { port = 5432 }
  }
}

notify "name" {
  targets = ["wbe", "d*b*", "x*", "db"]
  pager { url = "http://a" }
}

notify "label" {
  match = ["team=shpo"]
  pager { url = "http://a" }
}

notify "both" {
  targets = ["db[*]"]
  match   = ["team=shop"]
  pager { url = "http://a" }
}

notify "good" {
  targets = ["w*", "db[*]"]
  match   = ["team=shop"]
  pager { url = "http://a" }
}
