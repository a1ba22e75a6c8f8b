engine {
  listen "127.0.0.1:9650"
}

target web {
  adress = 
}

target "db" {
  address = "10.0.0.1
}
