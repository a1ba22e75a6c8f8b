engine {
  log_level  = "verbose"
  log_format = "logfmt"
}
