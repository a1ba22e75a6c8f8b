variable "env" { default = "prod" }
target "web-${var.env}" {
  address = "10.0.0.7"
}
