package health

import "time"

const (
	// MaxScore is the score of an engine that has been unhealthy for a long time (as many steps as
	// DefaultLANConfig.AwarenessMaxMultiplier in github.com/hashicorp/memberlist).
	MaxScore = 8

	// second is the unit of the score: an unhealthy second raises it by one, and a healthy second that follows another one lowers
	// it by one.
	second = int64(time.Second)

	// lostShare limits the time that the engine may lose in a healthy second, to 1/lostShare of it.
	lostShare = 10

	// Of a stall of up to hiccup, only 1/hiccupShare counts: next to four busy programs per processor, a loop is late by 20 to 40
	// ms several times a second, which makes no attempt fail.
	hiccup      = int64(50 * time.Millisecond)
	hiccupShare = 3
)

// score counts unhealthy seconds, like the local health score of Lifeguard (https://arxiv.org/abs/1707.00788). It is computed
// when it is read, so that an idle engine has nothing to do.
type score struct {
	value   int
	changed int64 // when it was last raised
	window  window
	blamed  int64 // when an attempt last raised it
}

// window is a second or a longer stall, and the time lost in it.
type window struct {
	start  int64
	lost   int64
	raised int64 // by how much the window has raised the score
}

// at returns the score at now. The first second after an increase does not lower the score, so that a problem in every second
// accumulates.
func (s *score) at(now int64) int {
	clean := (now - s.changed) / second
	return max(0, s.value-int(min(max(0, clean-1), MaxScore)))
}

func (s *score) raise(now int64, by int64) {
	s.value = min(MaxScore, s.at(now)+int(min(by, MaxScore)))
	s.changed = now
}

// lost adds a stall that ended at now. It raises the score by one for each second of which a notable part was lost.
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

// blame raises the score because an attempt could not be made, at most once per second.
func (s *score) blame(now int64) {
	if s.blamed == 0 || now-s.blamed >= second {
		s.blamed = now
		s.raise(now, 1)
	}
}
