engine {
  state         = "sonde.state"
  state_max_age = "-1s"
}
