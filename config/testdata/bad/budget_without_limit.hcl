engine {
  restart_budget = { per = "0s" }
}
