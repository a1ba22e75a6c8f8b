target "web" {
  address = "10.0.0.7"
  ports   = { http = 8080 }
  labels  = { share = "many" }
  probe "readiness" {
    tcp { port = "http" }
  }
}

group "port" {
  members = ["web"]
  port    = "htp"
}

group "label" {
  members      = ["web"]
  weight_label = "share"
}
