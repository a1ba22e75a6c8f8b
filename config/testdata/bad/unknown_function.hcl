target "web" {
  address = "10.0.0.1"
  ports = { http = tonumbr("80") }
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "db" {
  address = "10.0.0.1"
  ports = { http = max() }
  restart_policy = upper("a", "b")
  probe "readiness" {
    tcp { port = 80 }
  }
}
