target "web" {
  process {
    command = ["true"]
    user    = "root:no-such-group"
  }
}
