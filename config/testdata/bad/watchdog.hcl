engine {
  watchdog = "500ms"
}
