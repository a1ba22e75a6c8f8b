variable "word" {
  sensitive = true
}
variable "words" {
  type      = map(string)
  sensitive = true
  default   = null
}
variable "token" {
  sensitive = true
  default   = sensitive(trimspace(file("/etc/key")))
}

locals {
  db_password    = env("DB_PASSWORD", "")
  api_key        = null
  use_token      = true
  token_attempts = 3
  token_file     = "/run/secrets/token"
  logins         = { user = "sonde", password = var.word }
  consent        = { Cookie = nonsensitive("consent=yes") }
  database       = "postgres://probe:${env("DB_PASSWORD")}@${env("DB_HOST")}/shop"
  example        = nonsensitive("postgres://probe:password@localhost/shop")
}

target "web" {
  for_each = toset(["a", "b"])
  address  = "10.0.0.4"
  probe "readiness" {
    shout {
      greeting = var.words[each.key]
      words    = [env("WORD_${each.key}"), local.ours, var.own]
      headers = {
        X-Team        = "shop"
        Authorization = "Bearer ${var.token}"
        X-Api-Key     = [env("STAGE") == "prod" ? env("KEY") : file("/etc/key")]
      }
    }
  }
}
