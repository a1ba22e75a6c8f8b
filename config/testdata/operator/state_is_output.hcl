engine {
  state = "/var/sonde.out"
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
  render {
    path     = "/var/./sonde.out"
    template = "none"
  }
}
