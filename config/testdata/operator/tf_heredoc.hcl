script "s" {
  source = <<EOT
def attempt(t):
    return t.succeed("ok")
