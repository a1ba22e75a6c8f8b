variable "token" {
  type      = string
  sensitive = true
  default   = "hunter2"
}

variable "retries" {
  type    = object({ count = number, wait = optional(string, "1s") })
  default = { count = 3 }
}

target "api" {
  address = "::1"
  ports   = { http = 80 }
  probe "readiness" {
    http {
      port    = "http"
      headers = { Authorization = "Bearer ${var.token}" }
    }
    failure_threshold = var.retries.count
    timeout           = var.retries.wait
  }
}
