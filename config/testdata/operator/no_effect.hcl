target "shell" {
  address = "127.0.0.1"

  probe "readiness" "and" {
    exec { command = ["sh", "-c", "true", "&&", "false"] }
  }

  probe "readiness" "word" {
    exec { command = ["/bin/sh", "-c", "ls", "/nonexistent"] }
  }

  probe "readiness" "used" {
    exec { command = ["/bin/sh", "-c", "ls \"$1\"", "sh", "/nonexistent"] }
  }
}

target "grace" {
  address                  = "127.0.0.1"
  termination_grace_period = "1m"

  restart { command = ["true"] }

  probe "liveness" {
    tcp { port = 80 }
  }
}

group "web" {
  members = ["shell"]
}

gateway "directory" {
  group = "web"
  render {
    path     = "."
    template = "{{len .Members}}"
  }
}
