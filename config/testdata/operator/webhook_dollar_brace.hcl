target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    exec { command = ["/bin/sh", "-c", "test -e ${file}"] }
  }
}
notify "chat" {
  webhook {
    url  = "https://hooks.example/x"
    body = "{\"text\": \"${status}\"}"
  }
}
