target "web" {
  address = "10.0.0.1"
  labels  = { team = "shop" }
  probe "readiness" {
    tcp { port = 80 }
  }
}
group "web" {
  match = { team = "shop" }
}
notify "chat" {
  match = "team=shop"
  webhook { url = "https://hooks.example/x" }
}
maintenance "nightly" {
  match    = { team = "shop", tier = "web" }
  cron     = "0 3 * * *"
  duration = "1h"
}
