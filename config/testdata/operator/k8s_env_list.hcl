target "web" {
  process {
    command = ["true"]
    env     = [{ name = "LEVEL", value = "3" }]
  }
}
