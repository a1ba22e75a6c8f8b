variable "db_password" {
  default = "hunter2"
}

variable "token" {
  sensitive = true
  default   = "hunter2-of-a-sensitive-variable"
}

locals {
  apiKey  = "hunter2"
  logins  = [{ user = "sonde", password = "hunter2" }]
  page_of = { token_file = "/run/secrets/token", password_name = "login" }
}

target "web" {
  for_each = toset(["10.0.0.7", "10.0.0.8"])
  address  = each.value
  probe "readiness" "http" {
    http {
      port = 80
      headers = {
        Authorization = ["Bearer ${lower("hunter2")}"]
        X-Api-Key     = "hunter2"
        Cookie        = "session=${var.token}"
        X-Auth-Token  = sensitive("hunter2")
      }
    }
  }
  probe "readiness" "db" {
    exec {
      command = ["true", "postgres://sonde:hunter2@10.0.0.9/shop", "http://10.0.0.9:80/a@b"]
      env = {
        PGPASSWORD     = "hunter2"
        DB_SECRET      = ""
        DB_SECRET_FILE = "/run/secrets/db"
        DB_TOKEN       = env("HOME")
      }
    }
  }
}
