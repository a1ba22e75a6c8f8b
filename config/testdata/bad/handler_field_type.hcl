target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    http {
      path    = ["/"]
      headers = { Accept = { a = 1 } }
      status  = "200"
    }
  }
  probe "liveness" {
    exec { command = "cat /tmp/healthy" }
  }
  probe "startup" {
    tcp {
      port   = 80
      linger = 3
      weight = "heavy"
      tries  = 1e30
    }
  }
}
