engine {
  listen = "9650"
}
