# Build the plugin first: ./build.sh. Then: sonde run config.hcl

plugin "line" {
  source         = "line.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

target "cache" {
  address = "127.0.0.1"
  ports   = { memcached = 11211 }

  probe "readiness" {
    line {
      port           = "memcached"
      send           = "version"
      expect         = "VERSION "
      answer_timeout = "500ms"
      keep           = true
    }
    period = "5s"
  }
}

target "mail" {
  address = "127.0.0.1"
  ports   = { smtp = 25 }

  probe "readiness" {
    line {
      port     = "smtp"
      greeting = "220 "
      send     = "NOOP"
      expect   = "250 "
    }
    timeout = "2s"
  }
}
