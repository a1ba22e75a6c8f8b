target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    period = "1s
    intervall = "2s"
  }
}

target "db" {
  address = "10.0.0.1"
  adress = "x"
  probe "readiness" {
    tcp { port = 80 }
  }
}
