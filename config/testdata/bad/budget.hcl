engine {
  restart_budget = { per = "0s" }
  token_file     = ""
}
engine {
  restart_budget = 5
}
