package httpprobe

import (
	"bytes"
	"strconv"

	"github.com/sonde-probe/sonde/probe"
)

// parseChunks parses the beginning of a chunked body (RFC 9112, section 7.1), and joins the chunks when no more input is needed.
func (r response) parseChunks(b []byte) response {
	const most = probe.MaxDetail
	for offset, n := 0, 0; ; {
		size, line, ok := readChunk(b[offset:])
		data := b[offset+line:]
		switch {
		case !ok, n+size == most && size > 0: // net/http may or may not read the next chunk
			return unsupported
		case line == 0:
			return r
		case size == 0:
			return r.endChunks(b, data)
		case n+size > most:
			if r.complete = n+len(data) >= most; r.complete {
				r.body, r.cut, r.last = joinChunks(b), true, true
			}
			return r
		case len(data) == size+1 && data[size] != '\r':
			return unsupported
		case len(data) < size+2:
			return r
		case string(data[size:size+2]) != "\r\n":
			return unsupported
		}
		n, offset = n+size, offset+line+size+2
	}
}

// endChunks parses the empty line after the last chunk. Trailers are unsupported.
func (r response) endChunks(b, rest []byte) response {
	n := min(len(rest), 2)
	if string(rest[:n]) != "\r\n"[:n] {
		return unsupported
	}
	if r.complete = n == 2; r.complete {
		r.body, r.last = joinChunks(b), r.last || len(rest) > 2
	}
	return r
}

// maxChunkLine is the maximum length of the line before a chunk, in bytes: seven digits and the line break.
const maxChunkLine = 7 + 2

// readChunk parses the line with the size of a chunk, and returns the length of the line; 0 if the line is incomplete.
func readChunk(b []byte) (size, line int, ok bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return 0, 0, len(b) < maxChunkLine
	}
	if i < 2 || i >= maxChunkLine || b[i-1] != '\r' {
		return 0, 0, false
	}
	n, err := strconv.ParseUint(string(b[:i-1]), 16, 31)
	return int(n), i + 1, err == nil
}

// joinChunks moves the data of the chunks in b together, up to probe.MaxDetail bytes.
func joinChunks(b []byte) []byte {
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
