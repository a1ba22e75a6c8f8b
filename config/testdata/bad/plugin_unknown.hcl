plugin "grpc" {
  source         = "grpc.wasm"
  allow_unpinned = true
}
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    grcp { port = 80 }
  }
  probe "liveness" {
    redis { port = 80 }
  }
  probe "startup" {
    dynamic "mysql" {
      for_each = ["a"]
      content { port = 80 }
    }
  }
}
