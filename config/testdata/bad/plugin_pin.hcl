plugin "a" {
  source = "grpc.wasm"
  sha256 = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
}
plugin "b" {
  source = "grpc.wasm"
  sha256 = "0011"
}
plugin "c" { source = "../grpc.wasm" }
plugin "d" { source = "grpc.wasm" }
