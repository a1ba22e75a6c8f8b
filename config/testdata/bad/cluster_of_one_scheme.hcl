cluster {
  endpoints = ["http://10.0.0.2:2379", "https://10.0.0.1:2379"]
  password  = "hunter2"
}

target "db" {
  address = "10.0.0.3"
  probe "readiness" {
    tcp { port = 5432 }
  }
}
