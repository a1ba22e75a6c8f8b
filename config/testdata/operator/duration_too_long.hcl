target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    tcp { port = 80 }
    period  = "99999999h"
    timeout = "99999999999h"
  }
}
