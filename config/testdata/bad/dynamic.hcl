target "web" {
  address = "10.0.0.1"
  dynamic "probe" {
    for_each = ["x", "y"]
    labels   = ["readiness", probe.value]
    content {
      tcp { port = 80 }
    }
  }
  probe "liveness" {
    dynamic "tcp" {
      for_each = [80]
      content {
        port = tcp.value
      }
    }
  }
}
