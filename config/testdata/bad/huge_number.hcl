locals {
  a = 1e999999
}
