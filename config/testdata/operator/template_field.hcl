target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
group "web" {
  members = ["web"]
  port    = 80
}
gateway "edge" {
  group = "web"
  render {
    path     = "/tmp/upstream.conf"
    template = "{{ range .Membrs }}{{ .Address }}{{ end }}"
  }
}
gateway "other" {
  group = "web"
  render {
    path     = "/tmp/other.conf"
    template = "{{ range .Members }}{{ .Adress }}{{ end }}"
  }
}
