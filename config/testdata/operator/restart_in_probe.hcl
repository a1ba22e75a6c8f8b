target "web" {
  address = "10.0.0.7"
  probe "liveness" {
    exec { command = ["true"] }
    restart { command = ["true"] }
  }
}
