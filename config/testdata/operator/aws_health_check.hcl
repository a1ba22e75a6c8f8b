target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http { port = 80 }
    healthy_threshold   = 2
    unhealthy_threshold = 3
    matcher             = "200-299"
  }
}
