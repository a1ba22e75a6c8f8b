# An example configuration. `make run` builds everything and runs it:
#
#   http://127.0.0.1:9650/               the status page; `./bin/sonde status` shows the same in a terminal
#   curl -X POST 127.0.0.1:9651/break    makes the demo service fail its probes, so that it is restarted
#   curl -X POST 127.0.0.1:9651/hang     the same, and the service ignores SIGTERM
#
# `sonde validate` checks a changed configuration, and SIGHUP makes a running engine reload it.

engine {
  listen = "127.0.0.1:9650" # status page, API and /metrics

  # state = "/var/lib/sonde/sonde.state" # keeps verdicts and restarts over a stop or a crash of the engine
}

variable "slow_start" {
  description = "how long the demo service takes to start"
  default     = "3s"
}

locals {
  started = "bin/demo.started" # the demo service creates this file when it has started
}

# A plugin adds a handler. `make wasm` builds this one from source. It can connect to the probed target and nothing else.
plugin "heartbeat" {
  source         = "examples/wasm-probes/heartbeat/heartbeat.wasm"
  allow_unpinned = true # a plugin from elsewhere needs its sha256, which `sonde plugin inspect` shows

  limits {
    memory    = "16MiB"
    instances = 4
  }
}

# A process that the engine starts, watches and restarts.
target "demo" {
  ports = { http = 9651, beats = 9652 } # probes can refer to ports by name

  process {
    command = [
      "bin/demo", "-listen", "127.0.0.1:9651", "-heartbeat", "127.0.0.1:9652",
      "-slow-start", var.slow_start, "-started", local.started,
    ]
  }

  # To restart it, the engine sends SIGTERM, and after this time SIGKILL.
  termination_grace_period = "5s"

  # The delay before a restart: none the first time, then initial, then twice as long with
  # each restart, up to max. It starts over after the process has run for longer than reset.
  back_off {
    initial = "2s"
    max     = "30s"
    reset   = "1m"
  }

  # Has it started? The other probes wait until this one passes. With 20 failures at a
  # period of 500ms, the service has 10 seconds to start. The delay gives it time to remove
  # the file of a previous process that was killed.
  probe "startup" {
    exec { command = ["cat", local.started] }
    initial_delay     = "500ms"
    period            = "500ms"
    timeout           = "400ms"
    failure_threshold = 20
  }

  # Can it serve traffic? Here several probes must pass, so each has a name.
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

  # This one calls grpc.health.v1, by a plugin that is built in …
  probe "readiness" "serves" {
    grpc {
      port    = "http"
      service = "demo"
    }
    period  = "1s"
    timeout = "500ms"
  }

  # … and that of the plugin above keeps a connection open, and expects an answer to each heartbeat.
  probe "readiness" "beats" {
    heartbeat {
      port   = "beats"
      missed = 2
    }
    period  = "500ms"
    timeout = "400ms"
  }

  # Must it be restarted? After three consecutive failures the engine restarts it.
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

# A target without process or restart is only probed. This one is the engine itself. Each
# element of for_each is a target.
target "sonde" {
  for_each = { health = "/healthz", ready = "/readyz" }
  address  = "127.0.0.1"

  probe "readiness" {
    http {
      path = each.value
      port = 9650
    }
    period = "5s" # the defaults: a timeout of 1s, 1 success to pass, 3 failures to fail
  }
}
