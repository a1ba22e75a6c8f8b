engine { listen = "127.0.0.1:9674" }
target "never" {
  process { command = ["sleep", "1000"] }
  restart_policy = "never"
  probe "readiness" {
    exec { command = ["true"] }
    period = "200ms"
    timeout = "100ms"
  }
}
target "plain" {
  address = "127.0.0.1"
  probe "readiness" {
    exec { command = ["true"] }
    period = "200ms"
    timeout = "100ms"
  }
}
target "always" {
  process { command = ["sleep", "1000"] }
  probe "readiness" {
    exec { command = ["true"] }
    period = "200ms"
    timeout = "100ms"
  }
}
