engine {
  watchdog = "9s"
}
