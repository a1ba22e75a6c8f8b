plugin "grpc" {
  source = "https://plugins.example/grpc.wasm"
}
