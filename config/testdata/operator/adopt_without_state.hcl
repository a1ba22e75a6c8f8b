target "web" {
  process {
    command = ["true"]
    adopt   = true
  }
}
