target "web" {
  address = "10.0.0.1"
  probe "readiness" {
    beat {
      every = "1m"
      token = sensitive("hunter2")
    }
  }
}
notify "short" {
  webhook {
    url    = "https://hooks.example/x"
    secret = sensitive("hunter2")
  }
}
notify "encoded" {
  webhook {
    url    = "https://hooks.example/y"
    secret = sensitive("whsec_hunter2%")
  }
}
group "web" {
  members = ["web"]
  port    = 80
}
gateway "edge" {
  group = "web"
  prometheus {
    listen = "127.0.0.1:9779"
    token  = sensitive("hunter2")
  }
}
