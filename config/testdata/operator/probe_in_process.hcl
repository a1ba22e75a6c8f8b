target "web" {
  process {
    command = ["true"]
    probe "liveness" {
      exec { command = ["true"] }
    }
  }
}
