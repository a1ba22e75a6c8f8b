defaults {
  http { port = 80 }
}
