variable "secret" {
  default   = "hunter2"
  sensitive = true
}
locals {
  policy = upper(var.secret)
}
engine {
  compatibility = var.secret
  listen        = var.secret
  log_level     = local.policy
}
target "a" {
  restart_policy = var.secret
  ports          = { (var.secret) = 99999 }
  address        = "http://${var.secret}"
  process {
    command = [var.secret]
    env     = { (var.secret) = [] }
  }
}
target "b" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp {
      port  = var.secret
      token = "hunter3"
    }
    initial_delay     = var.secret
    failure_threshold = var.secret
  }
  probe "liveness" {
    tcp {
      port  = 80
      token = ["hunter3"]
    }
  }
  probe "startup" {
    http {
      scheme  = var.secret
      headers = { (var.secret) = { a = 1 } }
    }
  }
}
