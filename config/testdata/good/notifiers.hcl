target "web" {
  address = "127.0.0.1"
  labels  = { team = "shop" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "shop" {
  members = ["web"]
}

notify "all" {
  pager { url = "http://a" }
}

notify "some" {
  targets      = ["web*"]
  match        = ["team=shop"]
  groups       = ["sh*"]
  severity     = "critical"
  labels       = { site = "berlin" }
  external_url = "https://sonde.example.com/a/"
  siren { volume = 3 }
}

notify "groups" {
  targets = []
  pager { url = "http://a" }
}

notify "targets" {
  groups = []
  pager { url = "http://a" }
}
