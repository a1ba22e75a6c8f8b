package wasmhost

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"weak"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// prepared is the data that the module's check of settings prepared for attempts. Checks with equal
// data share it, because it may depend on only a few of the settings.
type prepared struct{ text string }

// keepPrepared stores the data that the module prepared. It returns nil if there is none, or logs a
// warning and returns nil if the data cannot be kept.
func (p *Plugin) keepPrepared(r sandbox.Report) *prepared {
	const lost = "prepared data of the plugin cannot be kept: each attempt prepares it again"
	switch {
	case r.TooLong > 0:
		p.logger.Warn(lost, "bytes", r.TooLong, "max", abi.MaxPrepared)
		return nil
	case r.Prepared == "":
		return nil
	}
	kept := p.prepared.share(r.Prepared)
	if kept == nil {
		p.logger.Warn(lost, "bytes", len(r.Prepared), "error", sandbox.ErrNoMemory)
	}
	return kept
}

// preparedTexts holds the prepared data of all checks, and accounts for its memory.
type preparedTexts struct {
	memory *sandbox.Sandbox // accounts for the memory

	mu   sync.Mutex                                   // guards kept
	kept map[[sha256.Size]byte]weak.Pointer[prepared] // by the hash of the text
}

func newPreparedTexts(memory *sandbox.Sandbox) *preparedTexts {
	return &preparedTexts{memory: memory, kept: make(map[[sha256.Size]byte]weak.Pointer[prepared])}
}

// share returns the prepared data with a text, or nil if there is no memory for it. Its memory is
// accounted for as long as a check refers to it.
func (t *preparedTexts) share(text string) *prepared {
	hash := sha256.Sum256([]byte(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.kept[hash].Value(); k != nil {
		return k
	}
	size := int64(len(text))
	if !t.memory.Reserve(size) {
		return nil
	}
	k := &prepared{text}
	t.kept[hash] = weak.Make(k)
	runtime.AddCleanup(k, func(hash [sha256.Size]byte) { t.forget(hash, size) }, hash)
	return k
}

// forget releases the memory of data that no check refers to any more.
func (t *preparedTexts) forget(hash [sha256.Size]byte, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept[hash].Value() == nil { // it has not been prepared again since
		delete(t.kept, hash)
	}
	t.memory.Unreserve(size)
}

// preparedText returns the data that the module prepared, or "".
func (c *settingsCheck) preparedText() string {
	if r := c.result.Load(); r != nil && r.prepared != nil {
		return r.prepared.text
	}
	return ""
}
