targets "web" {
  adress = "10.0.0.7"
}
