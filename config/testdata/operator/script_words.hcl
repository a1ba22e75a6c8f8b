script "bell" {
  source = <<-EOS
    def attempt(t):
        return t.fail(f"no bell at {t.name}")
  EOS
}

target "web" {
  address = "10.0.0.7"
  probe "readiness" {
    bell {}
  }
}
