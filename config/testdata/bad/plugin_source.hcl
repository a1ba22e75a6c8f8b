plugin "a" {}
plugin "b" { source = "" }
plugin "c" { source = "absent.wasm" }
plugin "d" {
  source         = "strange.wasm"
  allow_unpinned = true
}
plugin "e" {
  source         = "greedy.wasm"
  allow_unpinned = true
  limits { memory = "1MiB" }
}

# What is wrong with a plugin is told once, and not of each block that it adds.
target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    c { port = 80 }
  }
  probe "liveness" {
    d { anything = "goes" }
  }
}
