plugin "redis" {
  source = "data/hosts.txt"
}
plugin "mysql" {
  source = "data/hosts.txt"
  sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
}
target "web" {
  address = "10.0.0.1"
  probe "readiness" "redis" {
    redis {}
  }
  probe "readiness" "mysql" {
    mysql {}
  }
}
