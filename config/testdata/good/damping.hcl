# The defaults are those of routers.
target "defaults" {
  address = "10.0.0.1"
  damping {}
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "web" {
  for_each = toset(["a", "b"])
  address  = "10.0.0.2"

  damping {
    half_life = "5m"
    suppress  = 2500
    reuse     = 500
    max       = "20m"
  }

  probe "readiness" {
    tcp { port = 80 }
  }
}

target "free" {
  address = "10.0.0.3"
  probe "readiness" {
    tcp { port = 80 }
  }
}
