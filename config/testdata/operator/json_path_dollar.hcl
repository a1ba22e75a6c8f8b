target "web" {
  address = "10.0.0.1"
  probe "readiness" "equals" {
    http {
      port        = 80
      json_equals = { "$.status" = "ok" }
    }
  }
  probe "readiness" "regex" {
    http {
      port       = 80
      json_regex = { ".checks[0].status" = "ok" }
    }
  }
}
