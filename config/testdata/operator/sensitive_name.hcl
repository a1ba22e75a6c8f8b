variable "token" {
  default   = "hunter2"
  sensitive = true
}
target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port    = 80
      path    = "http://10.0.0.7/?key=${var.token}"
      headers = { Authorization = "Bearer ${var.token}\n" }
      status  = var.token
    }
  }
}
