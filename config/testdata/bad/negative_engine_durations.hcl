engine {
  state         = "sonde.state"
  state_max_age = "-1s"
  watchdog      = "-1s"
}
