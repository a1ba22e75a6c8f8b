engine {
  restart_budget = { max = -1, per = "1m", maximum = 3, ("x") = 1 }
}
