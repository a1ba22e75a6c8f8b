target "web" {
  process { command = ["true"] }
  back_off {
    initial = "10m"
    max     = "1m"
  }
}
