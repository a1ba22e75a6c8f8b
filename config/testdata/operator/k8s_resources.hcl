target "web" {
  process {
    command = ["true"]
    resources {
      limits = { memory = "64Mi" }
    }
  }
}
