target "web" {
  address = "10.0.0.1"
  labels  = { team = "shop", "my-team" = "shop" }
  ports   = { 80 = 8080, http = 70000 }
  probe "readiness" {
    tcp { port = 80 }
  }
}
