# Build the plugin first: go run . -o heartbeat.wasm. Then: sonde run config.hcl

plugin "heartbeat" {
  source         = "heartbeat.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

target "shop/demo" {
  address = "127.0.0.1"
  ports   = { beats = 9652 }

  # Five beats a second over one connection; a pause of 600 ms is a failure.
  probe "liveness" {
    heartbeat {
      port   = "beats"
      missed = 3
      wait   = "150ms"
    }
    period            = "200ms"
    timeout           = "200ms"
    failure_threshold = 1
  }
}

target "floor/controller" {
  address = "127.0.0.1"
  ports   = { control = 4840 }

  # A binary protocol: a type, a length and a counter of four bytes.
  probe "readiness" {
    heartbeat {
      port    = "control"
      format  = "hex"
      hello   = "01 00"
      welcome = "02 00"
      send    = "10 04 {seq32}"
      expect  = "11 04 {seq32}"
      slow    = "20ms"
    }
    period = "1s"
  }
}

target "floor/sensor" {
  address = "127.0.0.1"
  ports   = { beats = 4841 }

  # Datagrams get lost: three in a row are a failure, and so is a port that is closed.
  probe "readiness" {
    heartbeat {
      port    = "beats"
      network = "udp"
      missed  = 3
    }
    period            = "1s"
    timeout           = "500ms"
    failure_threshold = 1
  }
}
