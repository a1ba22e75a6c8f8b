variable "fixed" {
  sensitive = true
  default   = "hunter2"
}
variable "api_key" {
  default = "hunter2"
}
variable "plain" {}
variable "logins" {
  sensitive = true
  default   = { user = "probe", pin = ["hunter2"] }
}

locals {
  db_password = env("DB_PASSWORD", "hunter2")
  logins      = [{ user = "sonde", password = "hunter2" }]
  word        = sensitive(base64decode("aHVudGVyMg=="))
  database    = "postgres://probe:hunter2@${env("DB_HOST")}/shop"
  text        = "hunter2"
}

target "web" {
  for_each = { a = { token = "hunter2" } }
  address  = "10.0.0.4"
  probe "readiness" "shout" {
    shout {
      greeting = local.text
      words    = [env("WORD"), "hunter2", each.value.token]
      headers = {
        X-Team        = "shop"
        Authorization = "Bearer ${var.plain}"
        Cookie        = "session=${env("SESSION")}"
        X-Api-Key     = file("key")
      }
    }
  }
  probe "readiness" "sum" {
    shout {
      headers = merge(local.logins[0], { X-Api-Key = each.value.token })
    }
  }
  dynamic "probe" {
    for_each = []
    labels   = ["startup"]
    content {
      http {
        port = 80
        tls {
          ca_file = "ca.pem"
        }
      }
    }
  }
}
