target "web" {
  process {
    command      = ["true"]
    directory    = "/"
    environment  = "LEVEL=3"
    stopsignal   = "QUIT"
    autorestart  = true
    stopwaitsecs = 10
  }
}
