target "web" {
  for_each = { a = 1, b = 2 }
  address  = "10.0.0.${count.index}"
}

target "db" {
  for_each = toset(["a"])
  address  = "10.0.0.1"
  dynamic "probe" {
    for_each = [80]
    iterator = port
    labels   = ["liveness"]
    content {
      tcp { port = count.index }
    }
  }
}

target "cache" {
  address = "10.0.0.2"
  dynamic "probe" {
    for_each = ["5s"]
    iterator = every
    labels   = ["liveness"]
    content {
      dynamic "tcp" {
        for_each = [80]
        content {
          port = count.index
        }
      }
      period = count.index
    }
  }
}

target "queue" {
  address = "10.0.0.3"
  dynamic "probe" {
    for_each = [80]
    labels   = ["liveness"]
    content {
      exec { command = [for word in ["a"] : "${word}${count.index}"] }
    }
  }
}
