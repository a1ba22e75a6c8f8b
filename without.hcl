engine { listen = "127.0.0.1:9674" }
target "never" {
  process { command = ["sleep", "1000"] }
  restart_policy = "never"
}
target "plain" {
  address = "127.0.0.1"
}
target "always" {
  process { command = ["sleep", "1000"] }
}
