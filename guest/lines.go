package guest

import (
	"strconv"
	"strings"
)

// appendLine appends a line in the format of wasmhost/abi: a key, =, and a value with escaped line
// ends. It appends nothing if the value is empty.
func appendLine(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(b, key...), '=')
	for i := range len(value) {
		switch value[i] {
		case '\\':
			b = append(b, `\\`...)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, value[i])
		}
	}
	return append(b, '\n')
}

// eachLine calls f for each line of a text.
func eachLine(text string, f func(key, value string)) {
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		if key, value, ok := strings.Cut(line, "="); ok {
			f(key, unescape(value))
		}
	}
}

func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\\' && i+1 < len(s) {
			i++
			switch c = s[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// endpointOf parses the lines of the target.
func endpointOf(text string) (e endpoint) {
	eachLine(text, func(key, value string) {
		switch key {
		case "name":
			e.name = value
		case "address":
			e.address = value
		case "port":
			number, name, _ := strings.Cut(value, " ")
			if n, err := strconv.ParseUint(number, 10, 16); err == nil {
				e.setPort(name, uint16(n))
			}
		}
	})
	return e
}

func (e *endpoint) setPort(name string, number uint16) {
	if e.ports == nil {
		e.ports = make(map[string]uint16)
	}
	e.ports[name] = number
}
