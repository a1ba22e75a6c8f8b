target "web" {
  process {
    command = ["true"]
    dir     = "C:\srv\web"
  }
}
