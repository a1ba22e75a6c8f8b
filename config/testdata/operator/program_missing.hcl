target "web" {
  process { command = ["nginxx", "-g", "daemon off;"] }
}
