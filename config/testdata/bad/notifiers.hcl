target "web" {
  address = "127.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "shop" {
  members = ["web"]
}

notify "nothing" {
}

notify "both" {
  pager { url = "http://a" }
  siren { volume = 3 }
}

notify "nobody" {
  targets = []
  groups  = []
  pager { url = "http://a" }
}

notify "wrong" {
  targets      = ["web*", ""]
  match        = ["team"]
  groups       = ["shp", "sh*"]
  severity     = "fatal"
  labels       = { "a b" = "c" }
  external_url = "sonde.example.com"
  pager { url = "ftp://a" }
}

notify "match" {
  targets = []
  match   = ["team=shop"]
  pager { ulr = "http://a" }
}

notify "match" {
  urls = ["http://am:9093"]
  mail { to = "root" }
}
