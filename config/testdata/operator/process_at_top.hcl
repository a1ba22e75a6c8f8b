process {
  command = ["true"]
}
