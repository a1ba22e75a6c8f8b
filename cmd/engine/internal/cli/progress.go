package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// progressPeriod is how long Progress waits before it shows a line, and how often it updates the line. Shorter waits are not
// shown.
const progressPeriod = time.Second

// Progress shows on a terminal the step that a command waits for, if the wait takes longer than a second, in a line that
// disappears. A nil Progress, which is used for pipes and files, shows nothing. It is safe for concurrent use.
type Progress struct {
	w     io.Writer
	width int

	mu   sync.Mutex // guards step
	step string

	stop  chan struct{}
	ended chan struct{} // closed when the goroutine exits
	once  sync.Once
}

// StartProgress starts to show a step, such as "reading the configuration". Stop ends its goroutine.
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

// Step sets the step that the command waits for.
func (p *Progress) Step(text string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = text
}

// Stop removes the line, so that other output may follow. It may be called several times.
func (p *Progress) Stop() {
	if p == nil {
		return
	}
	p.once.Do(func() { close(p.stop) })
	<-p.ended
}

const eraseLine = "\r\x1b[K"

// show writes the line every second. It leaves the cursor at the start of the line, so that a log line overwrites it.
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
