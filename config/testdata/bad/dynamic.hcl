target "web" {
  address = "10.0.0.1"
  dynamic "prob" {
    for_each = ["a"]
    content {}
  }
  dynamic "probe" {
    content {}
  }
  dynamic "probe" {
    for_each = 5
    labels   = ["readiness"]
    content {
      tcp { port = 80 }
    }
  }
  dynamic "probe" {
    for_each = ["x", "y"]
    labels   = ["readiness", probe.value]
    content {
      tcp { port = probe.valu }
    }
  }
  dynamic "probe" {
    for_each = ["x", "y"]
    iterator = it
    labels   = ["liveness", it.value]
    content {
      tcp { port = 80 }
      period = it.key
    }
  }
  dynamic "probe" {
    for_each = ["x"]
    content {
      tcp { port = 80 }
    }
  }
}
