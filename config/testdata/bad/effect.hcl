defaults {
  effect = "warn" # not of startup probes
}

target "web" {
  address = "10.0.0.7"
  ports   = { http = 8080 }

  probe "startup" {
    tcp { port = "http" }
  }

  probe "readiness" {
    tcp { port = "http" }
    effect = "warning"
  }
}

target "db" {
  address = "10.0.0.8"

  probe "startup" {
    tcp { port = 5432 }
    effect = "warn"
  }

  probe "liveness" {
    tcp { port = 5432 }
    effect                   = "warn"
    termination_grace_period = "5s"
  }
}
