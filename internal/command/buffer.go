package command

import (
	"io"
	"strings"
	"sync"
	"unicode"
)

// Output keeps the first Max bytes that are written to it, or the last ones if Last is set, and discards the rest. Write never
// fails, so the writing process is not stopped. Its methods are safe for concurrent use.
type Output struct {
	Max  int // bytes
	Last bool

	mu   sync.Mutex // guards kept
	kept []byte     // with Last at most 2*Max, so that most writes need not move data
}

// Write returns len(p) and no error.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if !o.Last {
		o.kept = append(o.kept, p[:min(max(o.Max-len(o.kept), 0), n)]...)
		return n, nil
	}
	p = p[max(n-o.Max, 0):]
	if len(o.kept)+len(p) > 2*o.Max {
		o.kept = append(o.kept[:0], o.last()...)
	}
	o.kept = append(o.kept, p...)
	return n, nil
}

// ReadFrom copies r to its end with a small buffer: io.Copy would allocate 32 KiB for the output of each command, most of which is
// empty. It calls neither o.ReadFrom nor r.WriteTo.
func (o *Output) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{o}, struct{ io.Reader }{r}, make([]byte, 1<<10))
}

// String returns the kept bytes.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.last())
}

func (o *Output) last() []byte { return o.kept[max(len(o.kept)-o.Max, 0):] }

// LastLines returns the end of an output, at most limit bytes and "… ": its last lines, or the end of the last line if that is too
// long. Secrets must be replaced before the call.
func LastLines(output string, limit int) string {
	output = strings.TrimRightFunc(output, unicode.IsSpace)
	if len(output) <= limit {
		return output
	}
	end := output[len(output)-limit:]
	if _, lines, found := strings.Cut(end, "\n"); found {
		end = lines
	}
	return "… " + strings.ToValidUTF8(end, "")
}
