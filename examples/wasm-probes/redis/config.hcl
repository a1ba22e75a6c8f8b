# Build the plugin first: go run . -o redis.wasm. Then: sonde run config.hcl

plugin "redis" {
  source         = "redis.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

# SONDE_VAR_password in the environment sets it.
variable "password" {
  default   = "change me"
  sensitive = true
}

target "shop/sessions" {
  address = "127.0.0.1"
  ports   = { redis = 6379 }

  # Does it answer, and to those who know the password?
  probe "readiness" {
    redis {
      port     = "redis"
      password = var.password
    }
    period = "5s"
  }

  # A server that is filling its memory from disk is busy, not broken.
  probe "startup" {
    redis {
      port     = "redis"
      password = var.password
    }
    period            = "1s"
    failure_threshold = 300
  }
}

target "shop/sessions-replica" {
  address = "127.0.0.1"
  ports   = { redis = 6380 }

  # Does it hear from its primary?
  probe "readiness" {
    redis {
      port     = "redis"
      password = var.password
      role     = "replica"
      max_lag  = "15s"
    }
    period = "5s"
  }
}
