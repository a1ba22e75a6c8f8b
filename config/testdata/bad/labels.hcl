target {
  address = "10.0.0.1"
}
target "a" "b" {
  address = "10.0.0.1"
}
engine "main" {}
target "c" {
  probe {
    tcp { port = 80 }
  }
  probe "readiness" "a" "b" {
    tcp { port = 80 }
  }
}
