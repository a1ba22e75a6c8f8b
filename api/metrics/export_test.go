package metrics

// MaxScrapes is maxScrapes, for tests.
const MaxScrapes = maxScrapes
