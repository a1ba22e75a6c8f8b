locals {
  port = "http" + 1
}
