target "web" {
  address        = null + 1
  ports          = { http = "x" ? 1 : 2 }
  restart_policy = [for x in 5 : x]
  termination_grace_period = { a = 1 }.b
  probe "readiness" {
    tcp { port = 80 }
  }
}
