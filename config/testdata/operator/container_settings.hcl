engine { state = "/var/lib/sonde/state" }
target "web" {
  container {
    image       = "nginx latest"
    ports       = ["8080", "http:80", "80:http", "10.0.0:80:80", "53:53/sctp"]
    mounts      = ["./data:/data", "/etc/web", "/etc/web:etc", "/a:/b:rx"]
    working_dir = "srv"
    pull        = "sometimes"
    resources {
      memory = "1MiB"
      cpus   = 0.001
    }
  }
  probe "readiness" {
    http { port = 80 }
  }
}
