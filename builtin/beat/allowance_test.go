package beatprobe

import (
	"testing"
	"time"
)

func TestDatagramsThatChangeNothingAreReadAtABoundedRate(t *testing.T) {
	for name, distance := range map[string]time.Duration{"a flood": time.Microsecond, "as many as are allowed": time.Second / rejectedRate, "few": time.Second} {
		var a allowance
		begun := time.Now()
		now, read, longest := begun, 0, time.Duration(0)
		for ; read < 5*rejectedBurst; read++ {
			now = now.Add(distance)
			pause := a.spend(now)
			now, longest = now.Add(pause), max(longest, pause)
		}
		if most := rejectedBurst + int(now.Sub(begun).Seconds()*rejectedRate) + 1; read > most {
			t.Errorf("%s: %d were read in %v, which may be %d", name, read, now.Sub(begun), most)
		}
		if isFlood := distance < time.Second/rejectedRate; longest > 2*rejectedPause || longest > 0 != isFlood {
			t.Errorf("%s: the longest pause was %v", name, longest)
		}
	}
}
