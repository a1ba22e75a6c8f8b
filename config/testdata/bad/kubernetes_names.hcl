engine {
  listenAddress = "127.0.0.1:9650"
}

period = "5s"

probe "readiness" {}

target "web" {
  address       = "10.0.0.7"
  restartPolicy = "Always"
  timeout       = "5s"

  livenessProbe {
    httpGet { path = "/healthz" }
  }

  probe "readiness" {
    httpGet {
      path = "/healthz"
    }
    initialDelaySeconds           = 5
    periodSeconds                 = 10
    timeoutSeconds                = 1
    successThreshold              = 1
    failureThreshold              = 3
    terminationGracePeriodSeconds = 30
    period_seconds                = 10
    scheme                        = "HTTPS"
    port                          = 8080
  }

  probe "startup" {
    tcpSocket { port = 8080 }
  }

  probe "liveness" {
    grpc { port = 8080 }
  }

}

target "ports" {
  host          = "10.0.0.7"
  containerPort = 8080
  process {
    args       = ["./worker"]
    workingDir = "/srv"
  }
  probe "readinessProbe" {
    http {}
  }
}

target "api" {
  address = "10.0.0.8"

  probe "liveness" {
    http {
      httpHeaders   = [{ name = "Host", value = "x" }]
      periodSeconds = 3
      wrong         = 1
      tls { insecure_skip_verify = true }
    }
  }
}
