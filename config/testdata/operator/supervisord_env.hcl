target "web" {
  process {
    command = ["true"]
    env     = "LEVEL=3,MODE=fast"
  }
}
