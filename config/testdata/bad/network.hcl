defaults {
  network { mark = -1 }
  network {}
}

defaults "readiness" {
  network {}
}

target "web" {
  address = "10.0.0.1"
  network {
    namespace = "run/blue"
    interface = "a-name-that-is-too-long"
    source    = "eth0"
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "twice" {
  address = "10.0.0.1"
  network { name = "blue" }
  network {}
  probe "readiness" {
    tcp { port = 80 }
  }
}
