target "web" {
  process { command = ["true", "&&", "true"] }
}

target "db" {
  probe "readiness" {
    exec { command = ["true", "-f", "$HOME/ready"] }
  }
}

target "cache" {
  process { command = ["sh", "-c", "$CHECK", "2>/dev/null"] }
}

target "sum" {
  process { command = ["expr", "5", "|", "3"] }
}
