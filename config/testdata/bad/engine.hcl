engine {
  listen         = "localhost"
  concurency     = 5
  compatibility  = "k8s"
  restart_budget = { max = 3 }
  log_level      = "loud"
}
