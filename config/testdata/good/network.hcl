# A target's block replaces that of the defaults; an empty one is the network of the engine.
defaults {
  network { interface = "eth1" }
}

target "blue" {
  for_each = toset(["a", "b"])
  address  = "10.0.0.2"
  network {
    namespace = "blue"
    mark      = 4294967295
    interface = "vrf-blue"
    source    = "10.0.0.9"
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "inherits" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "engine" {
  address = "10.0.0.3"
  network {}
  probe "readiness" {
    tcp { port = 80 }
  }
}
