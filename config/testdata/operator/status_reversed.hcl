target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    http {
      port   = 80
      status = ["200", "399-300"]
    }
  }
}
target "db" {
  address = "10.0.0.2"
  probe "readiness" {
    http {
      port   = 80
      status = ["6xx"]
    }
  }
}
