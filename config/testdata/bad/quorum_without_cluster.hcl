vantage {
  zone = "eu-1"
}

target "web" {
  address = "10.0.0.4"
  probe "readiness" {
    tcp { port = 80 }
    quorum {
      vantages = 3
    }
  }
}
