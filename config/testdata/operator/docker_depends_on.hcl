target "web" {
  process { command = ["true"] }
  depends_on = ["db"]
}
