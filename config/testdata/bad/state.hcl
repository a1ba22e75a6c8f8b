engine {
  state         = ""
  state_max_age = "1s"
  resume        = "truth"
}
