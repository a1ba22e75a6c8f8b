engine {
  state = "/var/lib/no-such-dir/sonde.state"
}
target "web" {
  process { command = ["true"] }
}
