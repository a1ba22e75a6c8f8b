target "nginx" {
  process { command = ["/bin/true"] }
  stop_signal = "QUIT"
}

target "postgres" {
  process { command = ["/bin/true"] }
  stop_signal = "SIGINTR"
}

target "lower" {
  process { command = ["/bin/true"] }
  stop_signal = "sigint"
}

target "stopped" {
  process { command = ["/bin/true"] }
  stop_signal = "SIGSTOP"
}

target "number" {
  process { command = ["/bin/true"] }
  stop_signal = 2
}

target "inside" {
  process {
    command     = ["/bin/true"]
    stop_signal = "SIGINT"
  }
}

target "elsewhere" {
  address = "192.0.2.1"
  restart { command = ["/bin/true"] }
  stop_signal = "SIGINT"

  probe "liveness" {
    tcp { port = 80 }
  }
}

target "probed" {
  address     = "192.0.2.1"
  stop_signal = "SIGINT"

  probe "readiness" {
    tcp { port = 80 }
  }
}
