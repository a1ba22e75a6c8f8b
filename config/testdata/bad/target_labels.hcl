engine {
  metric_labels = ["team", "team", "app.name", "instance"]
}

defaults {
  labels = { site = "north", team = "shop" }
}

defaults "readiness" {
  labels = { site = "north" }
}

variable "owner" {
  default   = "hunter2"
  sensitive = true
}

target "names" {
  address = "10.0.0.1"
  labels = {
    app-name               = "web"
    "app.kubernetes.io/as" = "web"
    instance               = "web-1"
    __meta                 = "x"
    team                   = ["shop"]
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "list" {
  address = "10.0.0.1"
  labels  = ["team=shop"]
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "sensitive" {
  address = "10.0.0.1"
  labels  = { owner = var.owner }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "long" {
  address = "10.0.0.1"
  labels  = { team = format("%0300d", 1), many = "a\nb" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "many" {
  address = "10.0.0.1"
  labels  = { for i in range(33) : "l${i}" => "x" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "more" {
  address = "10.0.0.1"
  labels  = { for i in range(31) : "l${i}" => "x" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "label" {
  address = "10.0.0.1"
  label   = { team = "shop" }
  probe "readiness" {
    tcp {
      port   = 80
      labels = { team = "shop" }
    }
  }
}
