# Build the plugin first: go run . -o websocket.wasm. Then: sonde run config.hcl

plugin "websocket" {
  source         = "websocket.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

target "shop/chat" {
  address = "127.0.0.1"
  ports   = { ws = 8080 }

  # Does the application answer?
  probe "readiness" {
    websocket {
      port        = "ws"
      path        = "/chat"
      subprotocol = "chat.v1"
      headers     = { Origin = "https://shop.example" }
      send        = "{\"type\": \"hello\"}"
      expect      = "welcome"
    }
    period = "5s"
  }

  # Does anyone read what comes?
  probe "liveness" {
    websocket {
      port = "ws"
      path = "/chat"
    }
    timeout = "2s"
  }
}
