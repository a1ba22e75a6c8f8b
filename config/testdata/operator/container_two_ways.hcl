target "web" {
  container "web" { match = { "com.docker.compose.service" = "web" } }
  probe "readiness" {
    http { port = 80 }
  }
}
