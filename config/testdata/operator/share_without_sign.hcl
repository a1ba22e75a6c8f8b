engine {
  restart_budget = { share = 10, per = "1m" }
}
