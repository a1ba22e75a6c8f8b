modules {
  http_2xx {
    prober = "http"
  }
}
