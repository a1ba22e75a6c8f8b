target "a" {
  process {
    command = ["", "x"]
    env     = { "A=B" = "c" }
  }
  restart_policy = "alway"
}
target "b" {
  process {
    command = ["a\u0000b"]
    env     = ["A=b"]
  }
}
target "c" {
  address = "10.0.0.1"
  probe "liveness" {
    http {
      headers = "Host: x"
      tls {}
      tls {}
    }
  }
}
