target "web" {
  process { command = ["true"] }
  lifecycle {
    pre_stop = ["sleep", "5"]
  }
}
