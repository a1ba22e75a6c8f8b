engine {
  listen = "0.0.0.0:9650"
}
