target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "web" {
  members   = ["web"]
  min_ready = 50%
}
