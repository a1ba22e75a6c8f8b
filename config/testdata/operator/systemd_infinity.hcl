target "web" {
  process { command = ["true"] }
  termination_grace_period = "infinity"
}
