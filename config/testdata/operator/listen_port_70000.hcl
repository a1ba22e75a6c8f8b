engine {
  listen = ":70000"
  beats { listen = "127.0.0.1:99999" }
}
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
group "web" { members = ["web"] }
gateway "edge" {
  group = "web"
  agent { listen = "127.0.0.1:65536" }
}
