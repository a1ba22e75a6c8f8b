# Build the plugin first: go run . -o mysql.wasm. Then: sonde run config.hcl

plugin "mysql" {
  source         = "mysql.wasm"
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
  ports   = { mysql = 3306 }

  # Does it serve yet? Creating the system's tables and recovering from a crash take
  # their time.
  probe "startup" {
    mysql {
      port     = "mysql"
      user     = "probe"
      password = var.password
    }
    period            = "1s"
    failure_threshold = 120
  }

  # May it get writes, and is the schema there?
  probe "readiness" {
    mysql {
      port     = "mysql"
      user     = "probe"
      password = var.password
      database = "shop"
      role     = "primary"
      query    = "SELECT count(*) > 0 FROM schema_migrations"
      expect   = "1"
    }
    period  = "5s"
    timeout = "2s"
  }
}

target "shop/db-replica" {
  address = "127.0.0.1"
  ports   = { mysql = 3307 }

  # May it get queries whose answers are half a minute old at most?
  probe "readiness" {
    mysql {
      port     = "mysql"
      user     = "probe"
      password = var.password
      role     = "replica"
      max_lag  = "30s"
    }
    period  = "5s"
    timeout = "2s"
  }
}
