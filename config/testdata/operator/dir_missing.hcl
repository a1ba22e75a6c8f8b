target "web" {
  process {
    command = ["true"]
    dir     = "/srv/no-such-dir"
  }
}
