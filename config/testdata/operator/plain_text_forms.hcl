variable "suffix" { default = "x" }

locals {
  pin_secret     = 123456
  token_attempts = 3
  use_token      = true
  database       = "postgres://sonde:hunter2@${var.suffix}/shop"
  stages         = "postgres://sonde:${var.suffix}@10.0.0.9/shop"
  example        = nonsensitive("postgres://sonde:password@10.0.0.9/shop")
  password       = join("", ["hun", "ter2"])
  api_key        = env("NOT_THERE", "hunter2")
  session_cookie = "session=${var.suffix}"
  passphrase     = nonsensitive("hello")
}

target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    http {
      port    = 80
      headers = merge({ X-Team = ["shop"] }, { Authorization = ["Bearer hunter2"] })
    }
  }
}
