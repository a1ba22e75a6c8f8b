engine {
  listen         = "0.0.0.0:http"
  concurrency    = 0
  metrics_max_probes = 2000000
  plugin_memory  = "1KiB"
  restart_budget = { share = "10", per = 60 }
  tls {
    cert_file = "cert.pem"
  }
}
