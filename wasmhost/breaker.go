package wasmhost

import (
	"sync"
	"time"
)

// breaker suspends a probe whose attempts mostly trap, and the whole plugin when many of its probes
// do. The zero value is ready to use.
type breaker struct {
	mu       sync.Mutex // guards what follows, and each probeTraps
	probes   int        // that have made an attempt, and were not removed
	trapping int        // whose latest attempt since the plugin was suspended trapped
	starts   int        // failed starts of instances, in a row
	plugin   suspension
	ofPlugin uint64 // suspensions
	ofProbes uint64
}

// probeTraps is what a breaker knows of one probe. The zero value is ready to use; the methods
// of one breaker use it.
type probeTraps struct {
	counted         bool   // it is one of breaker.probes
	removed         bool   // it makes no further attempts
	ofPlugin        uint64 // breaker.ofPlugin at its latest attempt
	trapping        bool   // its latest attempt trapped
	since           time.Time
	attempts, traps int // since then
	suspension
}

// When a probe or a plugin is suspended, and for how long.
const (
	trapWindow      = time.Minute      // what is counted of a probe: for so long, and for minAttempts
	minAttempts     = 2 * minTraps     // those of a probe with a long period take longer than a trapWindow
	minTraps        = 5                // of a probe in a trapWindow, when they are at least half of its attempts
	maxTraps        = 60               // of a probe in a trapWindow, whatever else was attempted
	minProbes       = 5                // that trap, when they are at least half of the plugin's probes
	maxFailedStarts = 5                // of instances, in a row: they suspend the plugin
	minSuspension   = 10 * time.Second // doubles with each suspension
	maxSuspension   = 5 * time.Minute
	backOffLifetime = 10 * time.Minute // without a suspension; then the next one is a short one
)

// suspension says how long a probe or a plugin is suspended.
type suspension struct {
	until   time.Time
	backOff time.Duration // length of the last one
}

// begin suspends for longer than the last time.
func (s *suspension) begin(now time.Time) time.Duration {
	if now.Sub(s.until) > backOffLifetime {
		s.backOff = 0
	}
	s.backOff = min(max(2*s.backOff, minSuspension), maxSuspension)
	s.until = now.Add(s.backOff)
	return s.backOff
}

func (s *suspension) remaining(now time.Time) time.Duration { return max(s.until.Sub(now), 0) }

// remaining returns how long the plugin and one of its probes are still suspended; 0 for
// what is not.
func (b *breaker) remaining(p *probeTraps, now time.Time) (plugin, probe time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plugin.remaining(now), p.remaining(now)
}

// suspensions returns how long the plugin is still suspended, how often it was, and how often single probes
// were.
func (b *breaker) suspensions(now time.Time) (remaining time.Duration, plugin, probes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plugin.remaining(now), b.ofPlugin, b.ofProbes
}

// countStart counts the start of an instance. When that suspends the plugin, it returns for
// how long, else 0.
func (b *breaker) countStart(failed bool, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.starts = 0
		return 0
	}
	if b.starts++; b.starts < maxFailedStarts {
		return 0
	}
	return b.suspendPlugin(now)
}

// count counts an attempt of a probe. When that suspends the plugin or the probe, it
// returns for how long, else 0.
func (b *breaker) count(p *probeTraps, trapped bool, now time.Time) (plugin, probe time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.counted && !p.removed {
		p.counted = true
		b.probes++
	}
	if p.ofPlugin != b.ofPlugin {
		p.ofPlugin, p.trapping, p.attempts = b.ofPlugin, false, 0
	}
	if p.attempts == 0 || p.attempts >= minAttempts && now.Sub(p.since) >= trapWindow {
		p.since, p.attempts, p.traps = now, 0, 0
	}
	p.attempts++
	switch {
	case trapped && !p.trapping:
		b.trapping++
	case !trapped && p.trapping:
		b.trapping--
	}
	p.trapping = trapped
	if !trapped {
		return 0, 0
	}
	if p.traps++; p.traps >= minTraps && 2*p.traps >= p.attempts || p.traps >= maxTraps {
		probe = p.begin(now)
		p.attempts, p.traps = 0, 0
		b.ofProbes++
	}
	if b.trapping >= minProbes && 2*b.trapping >= b.probes {
		plugin = b.suspendPlugin(now)
	}
	return plugin, probe
}

// remove says that a probe was removed: the plugin is no longer measured by it.
func (b *breaker) remove(p *probeTraps) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.counted {
		b.probes--
	}
	if p.trapping && p.ofPlugin == b.ofPlugin {
		b.trapping--
	}
	p.counted, p.trapping, p.removed = false, false, true
}

// suspendPlugin suspends the plugin, unless it is already. What was counted until now does
// not count again.
func (b *breaker) suspendPlugin(now time.Time) time.Duration {
	if b.plugin.remaining(now) > 0 {
		return 0
	}
	b.starts, b.trapping = 0, 0
	b.ofPlugin++
	return b.plugin.begin(now)
}
