target "web" {
  process {
    command  = ["true"]
    env_file = ".env"
  }
}
