variable "a" {
  type = strng
}
variable "b" {
  type    = number
  default = "eight"
}
variable "c" {
  typ     = string
  default = var.b
}
variable "d" {
  type    = list
  default = []
}
variable "d" {
  default = []
}
variable "e f" {
  default = 1
}
variable "g" {
  default   = "x"
  sensitive = "perhaps"
}
