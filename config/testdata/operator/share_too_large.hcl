engine {
  reload_guard = "150%"
}
