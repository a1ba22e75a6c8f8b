# The policy of all kinds is not for startup probes, and thresholds of a less specific block are for
# those probes that have the policy "runs".
defaults {
  policy = "evidence"
}

defaults "readiness" {
  policy            = "runs"
  failure_threshold = 5
}

target "web" {
  address = "10.0.0.7"
  ports   = { http = 8080 }

  probe "startup" {
    tcp { port = "http" }
    failure_threshold = 30
  }

  probe "readiness" "runs" {
    tcp { port = "http" }
  }

  probe "readiness" "evidence" {
    tcp { port = "http" }
    policy = "evidence"
  }

  probe "liveness" {
    tcp { port = "http" }
  }
}
