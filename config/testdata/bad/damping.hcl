target "never" {
  address = "10.0.0.1"
  damping { max = "15m" }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "reuse" {
  address = "10.0.0.1"
  damping {
    suppress = 700
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "bounds" {
  address = "10.0.0.1"
  damping {
    half_life = "10ms"
    suppress  = 1000000
    reuse     = 200000
    max       = "1000h"
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "twice" {
  address = "10.0.0.1"
  damping {}
  damping {}
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "unknown" {
  address = "10.0.0.1"
  damping {
    halflife = "5m"
    max      = 60
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}

target "zero" {
  address = "10.0.0.1"
  damping {
    reuse = 0
  }
  probe "readiness" {
    tcp { port = 80 }
  }
}
