locals {
  a = file("no/such/file.txt")
  b = jsondecode("{")
  c = env("NOT_THERE")
  d = cidrhost("10.0.0.0", 1)
  e = range(5000)
  f = templatefile("no.tmpl", {})
  g = setproduct(range(1000), range(1000))
  h = format("%99999999d", 1)
  i = element([], 0)
  j = base64decode("é")
}
