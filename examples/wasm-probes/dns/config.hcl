# Build the plugin first: go run . -o dns.wasm. Then: sonde run config.hcl

plugin "dns" {
  source         = "dns.wasm"
  allow_unpinned = true # while it is built here; afterwards: sha256 = "…"

  grant { dial = ["target"] }
}

target "names/ns1" {
  address = "127.0.0.1"
  ports   = { dns = 53 }

  # Does it know its zone?
  probe "readiness" "zone" {
    dns {
      port          = "dns"
      name          = "www.example.org"
      answers       = ["192.0.2.7"]
      recursion     = false
      authoritative = true
    }
    period = "5s"
  }

  # Does it answer over TCP, too? Large answers need it.
  probe "readiness" "tcp" {
    dns {
      port    = "dns"
      network = "tcp"
      name    = "example.org"
      type    = "SOA"
    }
    period = "30s"
  }

  # Does it answer at all? An empty answer will do.
  probe "liveness" {
    dns {
      port  = "dns"
      name  = "example.org"
      type  = "TXT"
      least = 0
    }
    timeout = "2s"
  }
}
