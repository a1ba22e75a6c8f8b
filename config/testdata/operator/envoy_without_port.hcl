target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
  }
}

group "web" {
  members = ["web"]
}

gateway "edge" {
  group = "web"
  envoy { listen = "127.0.0.1:9781" }
}

gateway "proxy" {
  group = "web"
  haproxy { socket = "http://127.0.0.1:8404/stats" }
}
