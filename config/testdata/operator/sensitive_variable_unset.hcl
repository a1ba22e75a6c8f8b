variable "api_password" {
  sensitive = true
}
variable "api_user" {}
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    http {
      port    = 80
      headers = { X-User = var.api_user, X-Password = var.api_password }
    }
  }
}
