target "web" {
  address = "10.0.0.7"
  restart { command = ["systemctll", "restart", "web"] }
  probe "liveness" {
    tcp { port = 80 }
  }
}
