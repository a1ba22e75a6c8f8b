dynamic "target" {
  for_each = ["a", "b"]
  content {
    address = "10.0.0.7"
  }
}
