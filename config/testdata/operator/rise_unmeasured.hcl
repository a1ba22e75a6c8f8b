target "web" {
  address = "10.0.0.7"
  ports   = { http = 8080 }

  probe "readiness" {
    http {
      port     = "http"
      json_max = { "lag" = "ten" }
    }
  }

  probe "liveness" {
    http {
      port    = "http"
      measure = { lag = "replication.lag" }
    }
    warn_on_rise = "lagg"
    max_restarts = 3
  }

  probe "startup" {
    tcp { port = "http" }
    warn_on_rise = "latency"
  }
}
