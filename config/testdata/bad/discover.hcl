discover "fil" {
  files = ["a.json"]
  target "a" { address = each.value.address }
}

discover "file" {
  files = ["a.txt"]
  url   = "http://a.example"
  target "b" {
    address = each.value.address
  }
}

discover "file" {
  target "c" { address = each.value.address }
}

discover "http" {
  url = "a.example/targets"
  target "d" { address = each.value.address }
  target "e" { address = each.value.address }
}

discover "dns" {
  names = ["db.example.com"]
  port  = 80
}

discover "dns" {
  names = ["a..b"]
  type  = "A"
  target "f" {
    for_each = toset(["a"])
    address  = each.value
  }
}

discover "consul" {
  service = ""
  target "g" { address = each.value.address }
}

discover "http" {
  url = "http://a.example"
  target "h" {
    address = each.value.adress
    probe "readiness" {
      tcp { port = each.value.port }
    }
  }
}

discover "http" {
  url = "http://b.example"
  target "h" {
    address = each.value.address
    probe "readiness" {
      tcp { port = each.value.port }
    }
  }
}
