target "web" {
  address = "10.0.0.7"
  ports   = { http = 8080 }
  labels  = { share = "many" }
  probe "readiness" {
    tcp { port = "http" }
  }
}

group "web" {
  members = ["web"]
}

group "port" {
  members = ["web"]
  port    = "htp"
}

group "label" {
  members      = ["web"]
  weight_label = "share"
}

group "bounds" {
  members         = ["web"]
  port            = 0
  weight          = 257
  weight_label    = "a b"
  panic           = "0%"
  quorum          = -1
  slow_start      = "1ms"
  degraded_weight = 25
}

group "empty" {
  members      = ["web"]
  port         = ""
  weight_label = ""
}

gateway "unknown" {
  group = "wbe"
  agent { listen = "127.0.0.1:9777" }
}

gateway "unknowns" {
  groups = ["web", "none", "web"]
  agent { listen = "127.0.0.1:9777" }
}

gateway "both" {
  group  = "web"
  groups = ["web"]
  agent { listen = "127.0.0.1:9777" }
}

gateway "neither" {
  agent { listen = "127.0.0.1:9777" }
}

gateway "outputs" {
  group = "web"
  agent { listen = "127.0.0.1:9777" }
  render { path = "x" }
}

gateway "nothing" {
  group = "web"
}

gateway "inside" {
  group = "web"
  agent { liste = "127.0.0.1:9777" }
}

gateway "inside" {
  group = "web"
}

gateway "" {
  group = "web"
}

gateway "block" {
  group  = "web"
  listen = "127.0.0.1:9777"
  nginx { path = "x" }
}

gateway "first" {
  group = "web"
  render { path = "/run/web" }
}

gateway "second" {
  group = "web"
  render { path = "/run/api" }
}

gateway "third" {
  group = "web"
  render {
    path = "/run/web"
  }
}
