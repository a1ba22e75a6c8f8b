target "a" {
  process {
    command = []
  }
  restart {
    command = ["systemctl", "restart", "a"]
    timeout = "0s"
  }
  restart_policy = "on-failure"
}
target "b" {
  address        = "10.0.0.1"
  restart_policy = "never"
  back_off {
    initial = "10m"
    maximum = "1m"
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "c" {
  process {
    comand = ["x"]
  }
  process {
    command = ["y"]
  }
  termination_grace_period = "-5s"
}
target "d" {
  restart { command = ["x"] }
  back_off {
    initial = "10m"
    max     = "1m"
  }
}
