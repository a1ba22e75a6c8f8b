package revision

// MaxFiles is maxFiles.
const MaxFiles = maxFiles

// Decode is decode.
func Decode(compressed []byte, digest string) (*Bundle, error) { return decode(compressed, digest) }
