engine {
  state = "/etc/shadow"
}
target "worker" {
  process {
    command = ["sleep", "600"]
    log { file = "/etc/passwd" }
  }
}
group "worker" {
  members = ["worker"]
}
gateway "edge" {
  group = "worker"
  render {
    template = "{{ len .Members }}"
    path     = "/usr/lib/os-release"
  }
}
