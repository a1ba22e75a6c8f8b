target "web" {
  address = "127.0.0.1"
  labels  = { team = "shop", weight = "0" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "glob" {
  match = ["team!=sh*"]
}

group "small" {
  members = ["web"]
  quorum  = 5
}

group "weights" {
  members      = ["web"]
  weight_label = "wieght"
}

group "weightless" {
  members      = ["web"]
  weight_label = "weight"
}
