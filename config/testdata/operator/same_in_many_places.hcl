target "web1" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web2" {
  address = "10.0.0.2"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web3" {
  address = "10.0.0.3"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web4" {
  address = "10.0.0.4"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web5" {
  address = "10.0.0.5"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web6" {
  address = "10.0.0.6"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web7" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web8" {
  address = "10.0.0.8"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web9" {
  address = "10.0.0.9"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web10" {
  address = "10.0.0.10"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web11" {
  address = "10.0.0.11"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
target "web12" {
  address = "10.0.0.12"
  probe "readiness" {
    tcp { port = 80 }
    intervall = "5s"
  }
}
