engine {
  concurrency = 10000000
}
