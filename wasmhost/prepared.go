package wasmhost

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"weak"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// prepared is what the module's check of settings has prepared for attempts. Checks with the same
// text share it: it may depend on a few of the settings only.
type prepared struct{ text string }

// keepPrepared returns what the module has prepared, and logs if it cannot be kept.
func (p *Plugin) keepPrepared(r sandbox.Report) *prepared {
	const lost = "what the plugin has prepared for its settings is not kept, each attempt prepares it again"
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

// preparedTexts are the texts that checks use, and the memory that is counted for them.
type preparedTexts struct {
	memory *sandbox.Sandbox // that counts it

	mu   sync.Mutex                                   // guards kept
	kept map[[sha256.Size]byte]weak.Pointer[prepared] // by the hash of the text
}

func newPreparedTexts(memory *sandbox.Sandbox) *preparedTexts {
	return &preparedTexts{memory: memory, kept: make(map[[sha256.Size]byte]weak.Pointer[prepared])}
}

// share returns what has a text, if there is memory for it. It is counted as long as a check uses
// it.
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

// forget frees what no check uses any more.
func (t *preparedTexts) forget(hash [sha256.Size]byte, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept[hash].Value() == nil { // it was not prepared again since
		delete(t.kept, hash)
	}
	t.memory.Unreserve(size)
}

// preparedText returns what the module has prepared, or "".
func (c *settingsCheck) preparedText() string {
	if r := c.result.Load(); r != nil && r.prepared != nil {
		return r.prepared.text
	}
	return ""
}
