target "web" {
  address = "10.0.0.1"
  probe "readiness" "a" {
    period = "9000h"
    tcp { port = 80 }
  }
  probe "readiness" "b" {
    period = "99999999h"
    tcp { port = 80 }
  }
  probe "readiness" "c" {
    period = "400d"
    tcp { port = 80 }
  }
  probe "readiness" "d" {
    timeout    = "90s"
    warn_after = "2m"
    tcp { port = 80 }
  }
}
