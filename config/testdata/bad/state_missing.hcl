engine {
  state_max_age = "1m"
  resume        = "verify"
}
