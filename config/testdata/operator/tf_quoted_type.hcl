variable "hosts" {
  type    = "list(string)"
  default = []
}
