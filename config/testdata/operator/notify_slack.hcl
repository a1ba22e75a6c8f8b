target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    tcp { port = 80 }
  }
}
notify "chat" {
  slack { url = "https://hooks.slack.com/x" }
}
notify "mail" {
  email { to = "ops@example.com" }
}
