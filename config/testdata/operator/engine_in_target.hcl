target "web" {
  address = "10.0.0.7"
  listen = "127.0.0.1:9650"
}
