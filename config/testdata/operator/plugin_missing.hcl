plugin "grpc" {
  source = "plugins/grpc.wasm"
}
target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    grpc { port = 50051 }
  }
}
