target "web" {
  process {
    command = [sensitive("hunter2-program")]
    user    = sensitive("hunter2-user")
  }
}
