package httpprobe

import (
	"bytes"

	"github.com/sonde-probe/sonde/probe"
)

// chunks reads what has come of a body in chunks (RFC 9112, section 7.1), and puts
// them together when nothing more has to come.
func (a answer) chunks(b []byte) answer {
	const most = probe.MaxDetail
	for at, n := 0, 0; ; {
		size, line, ok := readChunk(b[at:])
		data := b[at+line:]
		switch {
		case !ok, n+size == most && size > 0: // what follows may be looked at by net/http, or not
			return oddAnswer
		case line == 0:
			return a
		case size == 0:
			return a.end(b, data)
		case n+size > most:
			if a.whole = n+len(data) >= most; a.whole {
				a.body = join(b)
			}
			return a
		case len(data) == size+1 && data[size] != '\r':
			return oddAnswer
		case len(data) < size+2:
			return a
		case string(data[size:size+2]) != "\r\n":
			return oddAnswer
		}
		n, at = n+size, at+line+size+2
	}
}

// end reads what follows the last chunk, which is empty: an empty line. Trailers
// are odd.
func (a answer) end(b, rest []byte) answer {
	n := min(len(rest), 2)
	if string(rest[:n]) != "\r\n"[:n] {
		return oddAnswer
	}
	if a.whole = n == 2; a.whole {
		a.body = join(b)
	}
	return a
}

// maxChunkLine bounds the line before a chunk, in bytes: seven digits and its end.
const maxChunkLine = 7 + 2

// readChunk reads the size of a chunk, and returns the length of the line that it
// stands on: 0 when that has not wholly come.
func readChunk(b []byte) (size, line int, ok bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return 0, 0, len(b) < maxChunkLine
	}
	if i < 2 || i >= maxChunkLine || b[i-1] != '\r' {
		return 0, 0, false
	}
	for _, c := range b[:i-1] {
		digit := hexDigit(c)
		if digit < 0 {
			return 0, 0, false
		}
		size = size<<4 | digit
	}
	return size, i + 1, true
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// join moves the chunks that b begins with together, as far as they are looked at.
func join(b []byte) []byte {
	n := 0
	for rest := b; n < probe.MaxDetail; {
		size, line, _ := readChunk(rest)
		if size == 0 {
			break
		}
		next := line + size + 2
		n += copy(b[n:], rest[line:line+min(size, probe.MaxDetail-n, len(rest)-line)])
		rest = rest[min(next, len(rest)):]
	}
	return b[:n]
}
