variable "replicas" {
  default = 0
  validation {
    condition     = var.replicas > 0
    error_message = "There must be a replica."
  }
  validation {
    condition = "x"
  }
  validation {
    error_message = "?"
  }
}
