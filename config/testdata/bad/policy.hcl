defaults "liveness" {
  policy = "evidence"
}

target "web" {
  address = "10.0.0.7"
  ports   = { http = 8080 }

  probe "startup" {
    tcp { port = "http" }
    policy = "evidence"
  }

  probe "readiness" "both" {
    tcp { port = "http" }
    policy            = "evidence"
    success_threshold = 2
  }

  probe "readiness" "misspelt" {
    tcp { port = "http" }
    policy = "evidense"
  }

  probe "liveness" {
    tcp { port = "http" }
    failure_threshold = 5
  }
}
