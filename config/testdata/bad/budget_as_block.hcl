engine {
  restart_budget {
    max = 3
  }
}
