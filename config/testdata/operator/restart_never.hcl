target "web" {
  address        = "10.0.0.7"
  restart_policy = "never"
  restart { command = ["true"] }
  probe "liveness" {
    http { port = 80 }
  }
}

target "job" {
  process { command = ["true"] }
  restart_policy = "never"
  back_off { initial = "1s" }
  probe "readiness" {
    exec { command = ["true"] }
  }
}
