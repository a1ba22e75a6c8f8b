job "web" {
  group "web" {
    count = 3
  }
}
