plugin "grpc" {
  source         = "grpc.wasm"
  allow_unpinned = true
  limits {
    memory      = 32
    module_size = "32MB"
    bytes_in    = "1m"
    bytes_out   = "lots"
    log         = true
    instances   = 1.5
    connections = "many"
    start       = 5
  }
}
plugin "zero" {
  source         = "grpc.wasm"
  allow_unpinned = true
  limits {
    memory    = "0B"
    instances = 0
    dials     = -1
    start     = 0
  }
}
