cluster {
  endpoints = ["https://root:hunter2@10.0.0.1:2379/"]
}

target "db" {
  address = "10.0.0.3"
  probe "readiness" {
    tcp { port = 5432 }
  }
}
