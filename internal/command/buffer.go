package command

import (
	"io"
	"strings"
	"sync"
	"unicode"
)

// Head keeps the first Max bytes that are written to it and drops the rest. Write never
// fails, so that the writing process is not stopped. Its methods may be called
// concurrently.
type Head struct {
	Max int // bytes

	mu   sync.Mutex // guards kept
	kept []byte
}

// Write returns len(p) and no error.
func (h *Head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := max(h.Max-len(h.kept), 0)
	h.kept = append(h.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

// ReadFrom copies r until it ends, with a small buffer: io.Copy would allocate 32 KiB for
// the output of each command, most of which is empty. It calls neither h.ReadFrom nor r.WriteTo.
func (h *Head) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, make([]byte, 1<<10))
}

// String returns the first Max bytes.
func (h *Head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.kept)
}

// Tail keeps the last Max bytes that are written to it. Its methods may be called
// concurrently.
type Tail struct {
	Max int // bytes

	mu   sync.Mutex // guards kept
	kept []byte     // at most twice Max, so that most writes move nothing
}

// Write returns len(p) and no error.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(n-t.Max, 0):]
	if len(t.kept)+len(p) > 2*t.Max {
		t.kept = append(t.kept[:0], t.last()...)
	}
	t.kept = append(t.kept, p...)
	return n, nil
}

// String returns the last Max bytes.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last())
}

func (t *Tail) last() []byte { return t.kept[max(len(t.kept)-t.Max, 0):] }

// LastLines returns the end of an output, of limit bytes and "… " at most: its last lines, or the end of the
// last one if that is too long. Replace what must not be shown before.
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
