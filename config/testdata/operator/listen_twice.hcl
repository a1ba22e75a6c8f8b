engine {
  listen = "127.0.0.1:9777"
}
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
group "web" {
  members = ["web"]
  port    = 80
}
gateway "edge" {
  group = "web"
  agent { listen = "127.0.0.1:9777" }
}
gateway "mesh" {
  group = "web"
  prometheus { listen = "localhost:9777" }
}
