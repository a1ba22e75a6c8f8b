target "web" {
  process { command = ["true"] }
  restart_policy = "unless-stopped"
}
