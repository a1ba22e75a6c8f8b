locals { web = yamldecode(file("data/port.yaml")).a }
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = local.web.port }
  }
}
target "db" {
  address = "10.0.0.2"
  probe "readiness" {
    tcp { port = "line protocol" }
  }
}
