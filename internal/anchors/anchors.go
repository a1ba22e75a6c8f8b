// Package anchors rejects YAML texts whose anchors make a small file a large one: when a text is converted to JSON,
// each alias becomes a copy of its anchor.
package anchors

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v2"
)

// minLimit is the total size of the texts in a file that is always accepted, in bytes.
const minLimit = 16 << 20

// Check returns an error if aliases expand the first document of a text to more than twice its length, and to more than
// minLimit. Other errors are left to the reader of the text.
func Check(text []byte) error {
	if !bytes.ContainsRune(text, '&') {
		return nil
	}
	var v any
	if yaml.Unmarshal(text, &v) != nil { // Unmarshal limits the number of values
		return nil
	}
	limit := max(minLimit, 2*len(text))
	if rest := remaining(v, limit); rest < 0 {
		return fmt.Errorf("YAML aliases expand it to more than %d bytes", limit)
	}
	return nil
}

// remaining returns rest less the size of a value; it is negative if the value is too long.
func remaining(value any, rest int) int {
	rest--
	switch v := value.(type) {
	case string:
		rest -= len(v)
	case []any:
		for i := 0; i < len(v) && rest >= 0; i++ {
			rest = remaining(v[i], rest)
		}
	case map[any]any:
		for name, field := range v {
			if rest < 0 {
				break
			}
			rest = remaining(field, remaining(name, rest))
		}
	}
	return rest
}
