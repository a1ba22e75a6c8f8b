target "web" {
  address = "[2001:db8::7]:80"
}
