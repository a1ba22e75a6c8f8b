engine {
  restart_budget = { share = "half", per = "1m" }
}
