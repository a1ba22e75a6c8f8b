variable "password" {
  sensitive = true
  default   = "hunter2"
}

cluster {
  endpoints = ["http://127.0.0.1:2379", "http://10.0.0.1:2379"]
  username  = "sonde"
  password  = var.password
}

target "db" {
  address = "10.0.0.3"
  probe "readiness" {
    tcp { port = 5432 }
  }
}
