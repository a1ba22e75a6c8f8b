variable "memory" { default = 16 }

engine { plugin_cache = "" }

plugin "grpc" {
  source = "plugins/grpc.wasm"
  sha256 = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
  grant { dial = ["target", "tcp://10.0.0.0/8:6379"] }
  limits {
    memory    = "${var.memory}MiB"
    instances = 8
  }
}

target "web" {
  for_each = toset(["10.0.0.7", "10.0.0.8"])
  address  = each.value
  ports    = { grpc = 9000 }
  probe "liveness" {
    grpc {
      port = "grpc"
      login {
        user     = "sonde"
        password = sensitive("hunter2")
      }
    }
  }
}
