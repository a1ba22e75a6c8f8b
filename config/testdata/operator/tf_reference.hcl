target "web" { address = "10.0.0.7" }
target "api" {
  address = target.web.address
}
