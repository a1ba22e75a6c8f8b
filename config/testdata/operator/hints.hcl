target "descent" {
  address = "127.0.0.1"

  probe "readiness" {
    http {
      port        = 80
      json_equals = { "$..a" = "b" }
    }
  }
}

target "address" {
  probe "readiness" {
    tcp { address = "db:80" }
  }
}

target "validity" {
  address = "127.0.0.1"

  probe "readiness" {
    http {
      port   = 443
      scheme = "https"
      tls { min_validity = 14 }
    }
  }
}

target "objects" {
  for_each = [{ a = "1", zone = "x" }, { a = "2", zone = "x" }]
  address  = each.value.a

  probe "readiness" {
    tcp { port = 80 }
  }
}

target "alike" {
  for_each = [{ zone = "x" }, { zone = "x" }]
  address  = each.value.zone

  probe "readiness" {
    tcp { port = 80 }
  }
}

target "status" {
  address = "127.0.0.1"

  probe "readiness" {
    http {
      port   = 80
      status = []
    }
  }
}
