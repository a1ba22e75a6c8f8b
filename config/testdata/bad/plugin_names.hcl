plugin "http" { source = "grpc.wasm" }
plugin "period" { source = "grpc.wasm" }
plugin "dynamic" { source = "grpc.wasm" }
plugin "my-plugin" { source = "grpc.wasm" }
plugin "" { source = "grpc.wasm" }
plugin "twice" {
  source         = "grpc.wasm"
  allow_unpinned = true
}
plugin "twice" { source = "grpc.wasm" }
