# A configuration to begin with. `make run` builds everything and runs it:
#
#   http://127.0.0.1:9650/         the status page; ./bin/sonde status is the same in a terminal
#   curl -X POST 127.0.0.1:9651/break    break the demo service, and see it restarted
#   curl -X POST 127.0.0.1:9651/hang     the same for a service that does not end when asked
#
# `sonde validate` checks what you change, and SIGHUP makes a running engine read it.

engine {
  listen = "127.0.0.1:9650" # status page, API and /metrics
}

variable "slow_start" {
  description = "how long the demo service takes to start"
  default     = "3s"
}

locals {
  started = "bin/demo.started" # the demo service writes this file when it has started
}

# Plugins add handlers. `make wasm` builds these two from their source, beside this
# file; they can reach the probed target and nothing else.
plugin "grpc" {
  source         = "examples/wasm-probes/grpc/grpc.wasm"
  allow_unpinned = true # what is not built here needs its sha256: see sonde plugin inspect
}

plugin "heartbeat" {
  source         = "examples/wasm-probes/heartbeat/heartbeat.wasm"
  allow_unpinned = true

  limits {
    memory    = "16MiB"
    instances = 4
  }
}

# A process that the engine starts, watches and restarts.
target "demo" {
  ports = { http = 9651, beats = 9652 } # probes can call ports by their names

  process {
    command = [
      "bin/demo", "-listen", "127.0.0.1:9651", "-heartbeat", "127.0.0.1:9652",
      "-slow-start", var.slow_start, "-started", local.started,
    ]
  }

  # When a probe ends it, it gets SIGTERM, and SIGKILL after this time.
  termination_grace_period = "5s"

  # The wait before another life: none the first time, then initial, and twice as
  # long with each life that ends, up to max. A life that lasted reset makes it
  # begin again.
  back_off {
    initial = "2s"
    max     = "30s"
    reset   = "1m"
  }

  # Has it started? The other probes wait until this one passes. It may fail 20
  # times, so that the service has 10 seconds to start. The delay gives the service
  # time to remove the file of a life that was killed.
  probe "startup" {
    exec { command = ["cat", local.started] }
    initial_delay     = "500ms"
    period            = "500ms"
    timeout           = "400ms"
    failure_threshold = 20
  }

  # May it get traffic? Here several probes have to pass, so that each has a name.
  probe "readiness" "answers" {
    http {
      path = "/ready"
      port = "http"
    }
    period            = "1s"
    timeout           = "500ms"
    failure_threshold = 2
  }

  probe "readiness" "connects" {
    tcp { port = "http" }
    period  = "1s"
    timeout = "500ms"
  }

  # The handlers of plugins look like the others: this one calls grpc.health.v1 …
  probe "readiness" "serves" {
    grpc {
      port    = "http"
      service = "demo"
    }
    period  = "1s"
    timeout = "500ms"
  }

  # … and this one keeps one connection, and has each beat answered over it.
  probe "readiness" "beats" {
    heartbeat {
      port   = "beats"
      missed = 2
    }
    period  = "500ms"
    timeout = "400ms"
  }

  # Must it be restarted? Three failures in a row end this life.
  probe "liveness" {
    http {
      path          = "/healthz"
      port          = "http"
      body_contains = "ok"
    }
    period            = "1s"
    timeout           = "500ms"
    failure_threshold = 3
  }
}

# Something that others run: it is probed, and nobody restarts it. This is the
# engine itself; one target is made for each element of for_each.
target "sonde" {
  for_each = { health = "/healthz", ready = "/readyz" }
  address  = "127.0.0.1"

  probe "readiness" {
    http {
      path = each.value
      port = 9650
    }
    period = "5s" # timeout is 1s, and the thresholds are 1 success and 3 failures
  }
}
