cluster {
  name      = "rack/1"
  endpoints = ["10.0.0.1:2379", "http://10.0.0.2:2379"]
  prefix    = "/sonde"
  ttl       = "1s"
  username  = "sonde"
  tls {
    ca_file = "ca.pem"
  }
}

cluster {}
