plugin "grpc" {
  source         = "grpc.wasm"
  allow_unpinned = true
}
target "web" {
  address = "10.0.0.1"
  ports   = { grpc = 9000 }
  probe "readiness" "typo" {
    grpc {
      port    = "grpc"
      sevrice = "shop"
      tls { servername = "shop" }
    }
  }
  probe "readiness" "missing" {
    grpc {
      login { password = "hunter2" }
    }
  }
  probe "readiness" "types" {
    grpc {
      port     = "grpc"
      wait     = 5
      metadata = ["a"]
      tls { verify = "maybe" }
      login {
        user     = "u"
        password = ["hunter2"]
      }
    }
  }
  probe "readiness" "port" {
    grpc { port = "gprc" }
  }
  probe "readiness" "refused" {
    grpc {
      port    = "grpc"
      service = "forbidden"
    }
  }
}
