target "web" {
  address = env("WEB_ADDRESS")
}
