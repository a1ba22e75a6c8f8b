target "db" {
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}

target "web" {
  for_each   = toset(["a", "b"])
  depends_on = ["db", "bd", "web"]
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}

target "one" {
  depends_on = ["two", "one"]
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}

target "two" {
  depends_on = ["three"]
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}

target "three" {
  depends_on = ["two"]
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}

target "many" {
  depends_on = [for i in range(101) : "db"]
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}

target "text" {
  depends_on = "db"
  probe "readiness" {
    exec { command = ["/bin/true"] }
  }
}
