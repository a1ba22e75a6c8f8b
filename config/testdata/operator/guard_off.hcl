engine {
  reload_guard = "off"
}
