defaults {
  timeout = "20s"
}
target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
  }
  probe "startup" {
    tcp { port = 80 }
    period = "30s"
  }
}
target "api" {
  address = "10.0.0.8"
  probe "readiness" {
    tcp { port = 80 }
  }
}
