target "web" {
  address = "127.0.0.1"
  labels  = { team = "shop", weight = "1" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "weights" {
  members      = ["web"]
  weight_label = "wieght"
}

maintenance "unknown" {
  match    = ["taem!=shop"]
  cron     = "0 0 * * *"
  duration = "1h"
}

notify "not_canaries" {
  match = ["tier!=canary"]
  pager { url = "http://a" }
}
