target "web" { address = "10.0.0.7" ports = { http = 80 } }
