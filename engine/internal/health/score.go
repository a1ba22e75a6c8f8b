package health

import "time"

const (
	// MaxScore is the score of an engine that is not well for a long time (as many steps
	// as DefaultLANConfig.AwarenessMaxMultiplier has in github.com/hashicorp/memberlist).
	MaxScore = 8

	// second is what the score counts: one that is not clean raises it by one, and a
	// clean one that follows another lowers it by one.
	second = int64(time.Second)

	// lostShare is the part of a second, one in so many, that the engine may lose in it
	// before the second is not clean.
	lostShare = 10

	// hiccup and hiccupShare say that of a stall up to a length one part in so many counts: beside four busy programs
	// a processor, a loop is late by 20 to 40 ms several times a second, which no attempt fails for.
	hiccup      = int64(50 * time.Millisecond)
	hiccupShare = 3
)

// score counts the seconds in which the engine was not well, as the local health score of
// Lifeguard does (https://arxiv.org/abs/1707.00788). It is computed when it is read, so
// that an idle engine has nothing to do.
type score struct {
	value   int
	changed int64 // when it was raised last
	window  window
	blamed  int64 // when an attempt raised it last
}

// window is a second or a longer stall, and what was lost in it.
type window struct {
	start  int64
	lost   int64
	raised int64 // by how much it has raised the score
}

// at returns the score at now. The first second after it was raised does not lower it, so
// that trouble in every second adds up.
func (s *score) at(now int64) int {
	clean := (now - s.changed) / second
	return max(0, s.value-int(min(max(0, clean-1), MaxScore)))
}

func (s *score) raise(now int64, by int64) {
	s.value = min(MaxScore, s.at(now)+int(min(by, MaxScore)))
	s.changed = now
}

// lost adds a stall that has ended at now. It raises the score by one for each second of
// which a notable part was lost.
func (s *score) lost(now, length int64) {
	w := &s.window
	if now-w.start >= second {
		*w = window{start: now}
	}
	if length <= hiccup {
		length /= hiccupShare
	}
	w.lost += length
	if w.lost < second/lostShare {
		return
	}
	if by := (w.lost+second-1)/second - w.raised; by > 0 {
		w.raised += by
		s.raise(now, by)
	}
}

// blame raises the score for an attempt that could not be made, once a second.
func (s *score) blame(now int64) {
	if s.blamed == 0 || now-s.blamed >= second {
		s.blamed = now
		s.raise(now, 1)
	}
}
