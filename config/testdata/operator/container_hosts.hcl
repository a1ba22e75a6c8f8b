target "tls" {
  container "web" { host = "tcp://10.0.0.7:2376" }
  probe "readiness" {
    http { port = 80 }
  }
}
target "ssh" {
  container "web" { host = "ssh://root@10.0.0.7" }
  probe "readiness" {
    http { port = 80 }
  }
}
target "relative" {
  container "web" { host = "docker.sock" }
  probe "readiness" {
    http { port = 80 }
  }
}
