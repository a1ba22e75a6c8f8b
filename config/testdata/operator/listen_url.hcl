engine {
  listen = "http://127.0.0.1:9650"
}
