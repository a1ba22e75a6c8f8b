package wasmhost

import (
	"sync"
	"time"
)

// breaker suspends a probe whose attempts mostly trap, and the whole plugin if many of its probes
// trap. The zero value is ready to use.
type breaker struct {
	mu       sync.Mutex // guards the fields below, and each probeTraps
	probes   int        // probes that have made an attempt and were not removed
	trapping int        // probes whose latest attempt trapped, since the last suspension of the plugin
	starts   int        // consecutive failed starts of instances
	plugin   suspension
	ofPlugin uint64 // suspensions of the plugin so far
	ofProbes uint64 // suspensions of single probes so far
}

// probeTraps is a breaker's record of one probe, used by the methods of that breaker only. The zero
// value is ready to use.
type probeTraps struct {
	counted         bool   // counted in breaker.probes
	removed         bool   // the probe was removed
	ofPlugin        uint64 // breaker.ofPlugin at the latest attempt
	trapping        bool   // the latest attempt trapped
	since           time.Time
	attempts, traps int // since the time in since
	suspension
}

// The thresholds and durations of suspensions.
const (
	trapWindow      = time.Minute      // a probe's attempts are counted for at least this time, and at least minAttempts
	minAttempts     = 2 * minTraps     // probes with a long period need more than a trapWindow for them
	minTraps        = 5                // traps of a probe in a trapWindow that suspend it, if at least half of its attempts trapped
	maxTraps        = 60               // traps of a probe in a trapWindow that suspend it in any case
	minProbes       = 5                // trapping probes that suspend the plugin, if they are at least half of its probes
	maxFailedStarts = 5                // consecutive failed starts of instances that suspend the plugin
	minSuspension   = 10 * time.Second // the first suspension; each further one is twice as long
	maxSuspension   = 5 * time.Minute
	backOffLifetime = 10 * time.Minute // time without a suspension after which the next one is minSuspension again
)

// suspension is the suspension of a probe or a plugin, with exponential back-off.
type suspension struct {
	until   time.Time
	backOff time.Duration // length of the latest suspension
}

// begin starts a suspension, twice as long as the previous one, and returns its length.
func (s *suspension) begin(now time.Time) time.Duration {
	if now.Sub(s.until) > backOffLifetime {
		s.backOff = 0
	}
	s.backOff = min(max(2*s.backOff, minSuspension), maxSuspension)
	s.until = now.Add(s.backOff)
	return s.backOff
}

func (s *suspension) remaining(now time.Time) time.Duration { return max(s.until.Sub(now), 0) }

// remaining returns the remaining suspensions of the plugin and of one of its probes; 0 means not
// suspended.
func (b *breaker) remaining(p *probeTraps, now time.Time) (plugin, probe time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plugin.remaining(now), p.remaining(now)
}

// suspensions returns the remaining suspension of the plugin, and the numbers of suspensions so far of the
// plugin and of single probes.
func (b *breaker) suspensions(now time.Time) (remaining time.Duration, plugin, probes uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.plugin.remaining(now), b.ofPlugin, b.ofProbes
}

// countStart counts the start of an instance. If it suspends the plugin, it returns the length of
// the suspension, otherwise 0.
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

// count counts an attempt of a probe. If it suspends the plugin or the probe, it returns the
// lengths of these suspensions, otherwise 0.
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

// remove removes a probe from the counts.
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

// suspendPlugin suspends the plugin and returns for how long, or 0 if it is suspended already. It
// resets the counts.
func (b *breaker) suspendPlugin(now time.Time) time.Duration {
	if b.plugin.remaining(now) > 0 {
		return 0
	}
	b.starts, b.trapping = 0, 0
	b.ofPlugin++
	return b.plugin.begin(now)
}
