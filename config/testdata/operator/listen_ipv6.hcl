engine {
  listen = "::1:9650"
}
