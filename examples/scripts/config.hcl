# Scripts that probe servers of common protocols. Adapt the addresses, and keep what you need:
#
#   sonde validate examples/scripts/config.hcl
#   sonde probe examples/scripts/config.hcl mail

script "smtp" {
  file = "smtp.star"
}

# A queue that has grown too long is a warning, which counts as a success.
script "queue" {
  source = <<-EOT
    def attempt(t):
        r = http.get("/api/queues", port = "http", headers = {"Accept": "application/json"})
        if r.status != 200:
            return t.fail("queue.status", "status %d" % r.status)
        length = r.json()["messages"]
        t.gauge("messages", length)
        if length > int(t.args["max"]):
            return t.warn("queue.long", "%d messages" % length)
        return t.succeed("%d messages" % length)
  EOT
}

target "mail" {
  address = "127.0.0.1"
  ports   = { smtp = 25 }

  probe "readiness" {
    smtp { port = "smtp" }
    period = "30s"
  }
}

target "broker" {
  address = "127.0.0.1"
  ports   = { http = 15672 }

  probe "readiness" {
    queue { args = { max = 1000 } }
  }
}
