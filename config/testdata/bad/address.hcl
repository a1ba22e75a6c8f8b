target "a" {
  address = "http://10.0.0.1/"
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "b" {
  address = "10.0.0.1:80"
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "c" {
  address = "[::1]"
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "d" {
  address = ""
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "e" {
  address = ["10.0.0.1"]
  probe "readiness" {
    tcp { port = 80 }
  }
}
target "f" {
  address = "two words"
  probe "readiness" {
    tcp { port = 80 }
  }
}
