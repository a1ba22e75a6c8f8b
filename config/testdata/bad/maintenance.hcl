maintenance "nothing" {}

maintenance "nobody" {
  cron     = "0 3 * * 0"
  duration = "1h"
}

maintenance "missing" {
  members  = ["web", "wbe"]
  match    = ["tier=canary"]
  cron     = "0 3 * * 0"
  duration = "1h"
}

maintenance "wrong cron" {
  members  = ["*"]
  cron     = "0 25 * * 0"
  duration = "1h"
}

maintenance "six fields" {
  members  = ["*"]
  cron     = "0 0 3 * * 0"
  duration = "1h"
}

maintenance "no such day" {
  members  = ["*"]
  cron     = "0 0 31 2 *"
  duration = "1h"
}

maintenance "endless" {
  members  = ["*"]
  cron     = "0 0 * * *"
  duration = "24h"
}

maintenance "too short" {
  members  = ["*"]
  cron     = "0 3 * * 0"
  duration = "1s"
}

maintenance "too long" {
  members  = ["*"]
  cron     = "0 0 1 * *"
  duration = "169h"
}

maintenance "nowhere" {
  members  = ["*"]
  cron     = "0 3 * * 0"
  duration = "1h"
  timezone = "Europe/Wien"
}

maintenance "misspelled" {
  members  = ["*"]
  cron     = "0 3 * * 0"
  duration = "1h"
  timzone  = "UTC"
}

maintenance "nowhere" {
  members  = ["*"]
  cron     = "0 3 * * 0"
  duration = "1h"
}

target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}

maintenance "each minute" {
  members  = ["*"]
  cron     = "* * 1-30 * *"
  duration = "1m"
}
