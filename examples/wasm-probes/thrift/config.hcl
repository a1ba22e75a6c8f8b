# Build the plugin first: go run . -o thrift.wasm. Then: sonde run config.hcl

plugin "thrift" {
  source         = "thrift.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

target "shop/calculator" {
  address = "127.0.0.1"
  ports   = { rpc = 9090 }

  probe "readiness" {
    thrift {
      port   = "rpc"
      method = "ping"
    }
    period = "5s"
  }

  probe "liveness" {
    thrift {
      port              = "rpc"
      method            = "sonde"
      unknown_method_ok = true
    }
    timeout = "2s"
  }
}
