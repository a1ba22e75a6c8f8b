plugin "grpc" {
  sorce    = "grpc.wasm"
  unpinned = true
  on_trap  = "restart"
  grants { dial = ["target"] }
  limits { memmory = "1MiB" }
}
plugin {
  source = "grpc.wasm"
}
plugin "two" "names" { source = "grpc.wasm" }
plugin "grant" {
  source = "grpc.wasm"
  grant  = { dial = ["target"] }
  limits { memory = ["1MiB"] }
}
plugin "dial" {
  source         = "grpc.wasm"
  allow_unpinned = true
  grant { dial = "target" }
}
