plugin "grpc" {
  source = "grpc.wasm"
  limits { memory = "64Mi" }
}
