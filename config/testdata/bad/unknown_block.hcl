target "web" {
  address = "10.0.0.1"
  probes "readiness" {}
  probe "readiness" {
    tcp { port = 80 }
  }
}

targt "web" {}
