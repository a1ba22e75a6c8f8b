package blackboximport

// MaxBytes is maxBytes, for tests.
const MaxBytes = maxBytes
