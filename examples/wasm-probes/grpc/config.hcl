# Build the plugin first: go run . -o grpc.wasm. Then: sonde run config.hcl

plugin "grpc" {
  source         = "grpc.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

# SONDE_VAR_token in the environment sets it.
variable "token" {
  default   = "change me"
  sensitive = true
}

target "shop/cart" {
  address = "127.0.0.1"
  ports   = { grpc = 9000 }

  # May it get traffic? This service may be down while the process is well.
  probe "readiness" {
    grpc {
      port     = "grpc"
      service  = "shop.v1.Cart"
      metadata = { authorization = "Bearer ${var.token}" }
    }
    period = "5s"
  }

  # Is the process well?
  probe "liveness" {
    grpc { port = "grpc" }
    timeout = "2s"
  }
}

target "etcd" {
  address = "127.0.0.1"
  ports   = { client = 2379 }

  probe "readiness" {
    grpc { port = "client" }
  }
}
