target "web" {
  for_each = { a = "5", b = "0" }
  address  = "10.0.0.7"
  ports    = { http = 8080 }
  labels   = { share = each.value }
  probe "readiness" {
    tcp { port = "http" }
  }
}

group "web" {
  members         = ["web[*]"]
  port            = "http"
  weight          = 200
  weight_label    = "share"
  panic           = "30%"
  quorum          = 2
  max_ejected     = "25%"
  slow_start      = "20s"
  degraded_weight = "25%"
}

group "other" {
  members = ["web[*]"]
  port    = 80
}

gateway "one" {
  group = "web"
  agent { listen = "127.0.0.1:9777" }
}

gateway "two" {
  groups = ["web", "other"]
  render { path = "x" }
}
