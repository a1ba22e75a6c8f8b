engine {
  watchdog    = "1m"
  allow_empty = true
}
