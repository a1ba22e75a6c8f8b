discover "file" {
  files       = ["/etc/sonde/sd/*.json", "/etc/sonde/more.yml"]
  allow_empty = true

  target "web" {
    name    = "${each.value.meta.job}/${each.key}"
    address = each.value.address
    ports   = { http = each.value.port }
    labels  = each.value.labels

    probe "readiness" {
      tcp { port = "http" }
    }
  }
}

discover "http" {
  url     = "https://inventory.example/targets"
  refresh = "30s"
  headers = { X-Site = "a" }

  target "shop" {
    address = each.value.address
    probe "readiness" {
      tcp { port = each.value.port }
    }
  }
}

discover "dns" {
  names = ["_pg._tcp.example.com"]

  target "db" {
    address = each.value.address
    probe "readiness" {
      tcp { port = each.value.port }
    }
  }
}

discover "consul" {
  service = "cache"
  tags    = ["v1"]

  target "cache" {
    address = each.value.address
    probe "readiness" {
      tcp { port = each.value.port }
    }
  }
}

group "all" {
  members = ["*"]
}
