target "nginx" {
  restart {
    start_program = "/etc/init.d/nginx start"
  }
}
