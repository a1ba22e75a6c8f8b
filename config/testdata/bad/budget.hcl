engine {
  restart_budget = { max = 1, per = "0s" }
  token_file     = ""
}
engine {
  restart_budget = 5
}
