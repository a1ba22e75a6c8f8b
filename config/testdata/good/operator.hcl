engine {
  listen         = "127.0.0.1:9650" # status page, API, /metrics
  concurrency    = 1024
  compatibility  = "kubelet"
  restart_budget = { max = 3, share = "10%", per = "1m" }
  token_file     = "/etc/sonde/token"
  state          = "/var/lib/sonde/sonde.state"
  state_max_age  = "5m"
  resume         = "verify"
  log_level      = "debug"
  log_format     = "json"
  tls {
    cert_file = "cert.pem"
    key_file  = "key.pem"
  }
}

variable "backends" {
  type    = set(string)
  default = ["10.0.0.7", "10.0.0.8"]
}

locals {
  probed = { for name, port in local.ports : name => port if port < 9000 }
  ports  = { http = local.base, grpc = 9000, admin = local.base + 1 }
  base   = 8080
}

defaults {
  period            = "2s"
  failure_threshold = 5
}

defaults "liveness" {
  failure_threshold        = 2
  termination_grace_period = "10s"
}

target "shop/web" {
  for_each = var.backends
  address  = each.value
  ports    = local.ports

  probe "startup" {
    exec { command = ["/app/ready", each.key] }
    failure_threshold = 30
  }

  dynamic "probe" {
    for_each = local.probed
    iterator = port
    labels   = ["readiness", port.key]
    content {
      http {
        path    = "/healthz"
        port    = port.value
        headers = { Host = "shop.example", Accept = ["text/plain", "*/*"] }
      }
      period  = "500ms"
      timeout = "250ms"
    }
  }

  probe "liveness" {
    tcp { port = "grpc" }
  }
}

target "worker" {
  process {
    command = ["./bin/worker", "-v"]
    env     = { HOME = "/srv", LEVEL = 3 }
    dir     = "/srv"
    user    = "worker"
  }
  termination_grace_period = "5s"
  restart_policy           = "on_failure"
  back_off {
    initial = "1s"
    reset   = "1m"
  }

  probe "liveness" {
    exec { command = ["cat", "/tmp/healthy"] }
    initial_delay = "5s"
    period        = "5s"
    on_error      = "fail"
  }
  probe "readiness" {
    http {
      port = 8080
      tls {
        verify  = false
        ca_file = null
      }
    }
    success_threshold = 2
  }
}

target "db" {
  restart {
    command = ["systemctl", "restart", "db"]
    timeout = "30s"
  }
  probe "liveness" {
    exec { command = ["pg_isready"] }
  }
}
