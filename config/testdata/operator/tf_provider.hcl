terraform {
  required_version = ">= 1.0"
}
provider "sonde" {}
