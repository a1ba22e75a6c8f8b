defaults {
  period  = 5
  retries = 3
}
defaults {
  period = "5s"
}
defaults "rediness" {
  period = "5s"
}
defaults "readiness" {
  termination_grace_period = "5s"
}
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
