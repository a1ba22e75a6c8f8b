package command

import (
	"io"
	"sync"
)

// Head keeps the first Max bytes that are written to it and drops the rest. It
// never refuses a write, so that who writes is never stopped by it. Its methods
// may be called from several goroutines at once.
type Head struct {
	Max int // bytes

	mu   sync.Mutex
	kept []byte
}

// Write keeps what still fits. It returns len(p) and no error.
func (h *Head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	room := max(h.Max-len(h.kept), 0)
	h.kept = append(h.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

// ReadFrom copies r until it ends. It is there to read in small pieces: io.Copy
// would take 32 KiB for each command's output, which is mostly empty.
func (h *Head) ReadFrom(r io.Reader) (total int64, err error) {
	piece := make([]byte, 1<<10)
	for {
		n, err := r.Read(piece)
		_, _ = h.Write(piece[:n])
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// String returns what was kept.
func (h *Head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.kept)
}

// Tail keeps the last Max bytes that are written to it. Its methods may be
// called from several goroutines at once.
type Tail struct {
	Max int // bytes

	mu   sync.Mutex
	kept []byte // at most twice Max, so that most writes move nothing
}

// Write keeps p and forgets what is too old. It returns len(p) and no error.
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
