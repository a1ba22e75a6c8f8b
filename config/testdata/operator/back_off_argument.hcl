target "web" {
  process { command = ["true"] }
  back_off = { initial = "1s" }
}
