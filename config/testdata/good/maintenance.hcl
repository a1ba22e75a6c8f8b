maintenance "nightly" {
  members  = ["shop/*"]
  match    = ["tier!=canary"]
  cron     = "30 2 * * mon-fri"
  duration = "45m"
  timezone = "UTC"
  reason   = "backup"
}

maintenance "all" {
  members  = ["*"]
  cron     = "@monthly"
  duration = "1h"
}

target "shop/web" {
  address = "10.0.0.1"
  labels  = { tier = "web" }
  probe "readiness" {
    tcp { port = 80 }
  }
}
