package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// progressPeriod is after how long Progress says what a command waits for, and how often it says for how long.
// What takes less time needs no word.
const progressPeriod = time.Second

// Progress shows on a terminal what a command waits for, once that takes longer than a second, in a line that
// disappears. The nil Progress shows nothing: a pipe and a file get none. The methods may be called concurrently.
type Progress struct {
	w     io.Writer
	width int

	mu   sync.Mutex // guards step
	step string

	stop  chan struct{}
	ended chan struct{} // closed when the goroutine has ended
	once  sync.Once
}

// StartProgress begins to wait for a step, such as "reading the configuration". Stop ends its goroutine.
func StartProgress(w io.Writer, step string) *Progress {
	if !IsTerminal(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return startProgress(w, ScreenOf(w).Width, step)
}

func startProgress(w io.Writer, width int, step string) *Progress {
	p := &Progress{w: w, width: width, step: step, stop: make(chan struct{}), ended: make(chan struct{})}
	go p.show()
	return p
}

// Step says what the command waits for from now on.
func (p *Progress) Step(text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = text
}

// Stop removes the line. What follows may be written then. It may be called several times.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	p.once.Do(func() { close(p.stop) })
	<-p.ended
}

const eraseLine = "\r\x1b[K"

// show writes the line each second. It leaves the cursor at its begin, so that a line of a log replaces it.
func (p *Progress) show() {
	defer close(p.ended)
	began := time.Now()
	tick := time.NewTicker(progressPeriod)
	defer tick.Stop()
	for shown := ""; ; shown = eraseLine {
		select {
		case <-p.stop:
			_, _ = io.WriteString(p.w, shown)
			return
		case <-tick.C:
			p.mu.Lock()
			line := fmt.Sprintf("%s, %s", p.step, probe.Brief(time.Since(began).Round(time.Second)))
			p.mu.Unlock()
			_, _ = io.WriteString(p.w, eraseLine+Cut(line, p.width-1)+"\r")
		}
	}
}
