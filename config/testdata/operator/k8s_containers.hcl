target "web" {
  containers {
    probe "liveness" {
      exec { command = ["true"] }
    }
  }
}
