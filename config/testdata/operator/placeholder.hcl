target "web" {
  address = "{{ web_host }}"
}
target "api" {
  address = "<host>"
}
