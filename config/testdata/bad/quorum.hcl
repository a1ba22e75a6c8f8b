cluster {
  endpoints = ["https://10.0.0.1:2379"]
  vantage {
    zone = ""
  }
}

target "web" {
  address = "10.0.0.4"
  probe "startup" {
    tcp { port = 80 }
    quorum {}
  }
  probe "readiness" {
    tcp { port = 80 }
    quorum {
      vantages = 3
      min      = 4
      fail     = "most"
      spread   = "rack"
    }
    quorum {}
  }
}

target "db" {
  process {
    command = ["/bin/db"]
  }
  probe "liveness" {
    tcp { port = 5432 }
    quorum {
      vantages = 1
      min      = 3
    }
  }
}
