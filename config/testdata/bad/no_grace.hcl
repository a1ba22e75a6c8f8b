target "db" {
  address                  = "127.0.0.1"
  termination_grace_period = "0s"
}

target "web" {
  address                  = "127.0.0.1"
  termination_grace_period = "-1s"
}
