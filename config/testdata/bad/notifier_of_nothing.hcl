target "web" {
  address = "127.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}

notify "targets" {
  targets = []
  pager { url = "http://a" }
}
