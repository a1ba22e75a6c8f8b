target "web" {
  process {
    command = ["true"]
    user    = "no-such-user"
  }
}
