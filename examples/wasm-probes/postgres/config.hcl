# Build the plugin first: go run . -o postgres.wasm. Then: sonde run config.hcl

plugin "postgres" {
  source         = "postgres.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }

  limits {
    memory    = "16MiB"
    instances = 8
  }
}

# SONDE_VAR_password in the environment sets it.
variable "password" {
  default   = "change me"
  sensitive = true
}

target "shop/db" {
  address = "127.0.0.1"
  ports   = { postgres = 5432 }

  # May it get writes, and is the schema there?
  probe "readiness" {
    postgres {
      port     = "postgres"
      user     = "probe"
      password = var.password
      database = "shop"
      role     = "primary"
      query    = "SELECT count(*) > 0 FROM schema_migrations"
      expect   = "t"
    }
    period  = "5s"
    timeout = "2s"
  }
}

target "shop/db-standby" {
  address = "127.0.0.1"
  ports   = { postgres = 5433 }

  # May it get queries whose answers are half a minute old at most?
  probe "readiness" {
    postgres {
      port     = "postgres"
      user     = "probe"
      password = var.password
      role     = "standby"
      max_lag  = "30s"
    }
    period  = "5s"
    timeout = "2s"
  }
}
