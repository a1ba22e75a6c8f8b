target "db" {
  process { command = ["/bin/true"] }
}

target "worker" {
  for_each = toset(["a", "b"])
  process { command = ["/bin/true"] }
  start_after = ["db"]
}

target "app" {
  process { command = ["/bin/true"] }
  start_after = ["db", "bd", "worker", "worker[\"a\"]"]
}

target "itself" {
  process { command = ["/bin/true"] }
  start_after = ["itself"]
}

target "one" {
  process { command = ["/bin/true"] }
  start_after = ["two"]
}

target "two" {
  process { command = ["/bin/true"] }
  start_after = ["db", "three"]
}

target "three" {
  process { command = ["/bin/true"] }
  start_after = ["one"]
}

target "list" {
  process { command = ["/bin/true"] }
  start_after = "db"
}

target "restarted" {
  address = "192.0.2.1"
  restart { command = ["/bin/true"] }
  start_after = ["db"]

  probe "liveness" {
    tcp { port = 80 }
  }
}

target "probed" {
  address     = "192.0.2.1"
  start_after = ["db"]

  probe "readiness" {
    tcp { port = 80 }
  }
}
