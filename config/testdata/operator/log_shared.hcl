target "web" {
  process {
    command = ["true"]
    log { file = "/tmp/shared.log" }
  }
}

target "db" {
  process {
    command = ["true"]
    log { file = "/tmp/shared.log" }
  }
}
