target "web" {
  address = "10.0.0.7"
  dynamic "probe" {
    for_each = [80, 81]
    labels   = ["readiness", "p${each.value}"]
    content {
      tcp { port = probe.value }
    }
  }
}
