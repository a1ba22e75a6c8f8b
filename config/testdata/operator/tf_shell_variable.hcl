target "web" {
  process {
    command = ["true"]
    dir     = "$HOME/web"
  }
}
