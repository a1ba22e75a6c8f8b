package blackboximport

// MaxBytes is maxBytes, and OfLine is ofLine, for tests.
const MaxBytes = maxBytes

var OfLine = ofLine
