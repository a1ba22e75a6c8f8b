target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    period "10s"
    tcp { port = 80 }
  }
}
target "db" {
  address = "10.0.0.2"
  probe "readiness" {
    tcp {
      port 5432
    }
  }
}
