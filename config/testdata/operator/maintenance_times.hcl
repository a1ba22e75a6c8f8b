target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
  }
}

maintenance "night" {
  members  = ["web"]
  cron     = "0 3 * * *"
  duration = "1h"
  start    = "03:00"
  end      = "04:00"
}
