target "" {
}
target "a\u0007b" {
}
target "c" {
  address = "10.0.0.1"
  probe "readiness" "" {
    tcp { port = 80 }
  }
  probe "liveness" "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" {
    tcp { port = 80 }
  }
}
variable "1st" {
  default     = 1
  description = []
}
