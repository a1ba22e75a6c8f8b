// Package anchors refuses YAML texts whose anchors make a small file a large one: each alias of a text is a copy of it as soon as the
// text is converted to JSON.
package anchors

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v2"
)

// minLimit is how long the texts of a file may be in any case, in bytes.
const minLimit = 16 << 20

// Check returns an error if aliases make the first document of a text more than twice as long as it is, and long. What else is wrong with
// it its reader finds.
func Check(text []byte) error {
	if !bytes.ContainsRune(text, '&') {
		return nil
	}
	var v any
	if yaml.Unmarshal(text, &v) != nil { // which bounds the number of values
		return nil
	}
	limit := max(minLimit, 2*len(text))
	if rest := remaining(v, limit); rest < 0 {
		return fmt.Errorf("its aliases make it longer than %d bytes", limit)
	}
	return nil
}

// remaining returns what is left of a number of bytes after a value; less than 0 if it is too long.
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
