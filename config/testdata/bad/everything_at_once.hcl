engine {
  listen = 9650
}

variable "hosts" {
  default = ["10.0.0.1", "10.0.0.2"]
}

target "web" {
  for_each = var.hosts
  address  = each.value
}

target "api" {
  adress = "10.0.0.3"
  ports  = { http = 80800 }

  probe "readines" {
    http { path = "/" }
  }

  probe "liveness" {
    http {
      path = "/"
      port = "https"
    }
    exec { command = ["true"] }
    period            = 5
    success_threshold = 2
  }
}

target "api" {
  address = "10.0.0.4"
  probe "liveness" {}
}
