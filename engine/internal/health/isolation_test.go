package health

import (
	"fmt"
	"testing"
)

// cutOff returns an Isolation with a last answer at 100, and a number of attempts that
// began after it, of so many peers.
func cutOff(attempts, peers int) *Isolation {
	i := &Isolation{}
	i.Begin("before")
	i.Answer(100)
	for n := range attempts {
		i.Begin(fmt.Sprint("10.0.0.", n%peers))
	}
	return i
}

func TestSilenceIsTheEnginesIfManyPeersAreSilentAtOnce(t *testing.T) {
	for _, test := range []struct {
		name            string
		attempts, peers int
		began           int64
		want            bool
	}{
		{"many peers", 10, 10, 101, true},
		{"four peers", 10, 4, 101, true},
		{"three peers", 100, 3, 101, false},
		{"nine attempts", 9, 9, 101, false},
		{"a peer has answered in the second half of the attempt", 100, 50, 9, false},
		{"a peer has answered in the first half of the attempt", 100, 50, 10, true},
		{"nothing was expected", 0, 1, 101, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := cutOff(test.attempts, test.peers)
			if got := i.Silence(test.began, 190, 60); got != test.want || (i.Until() == 250) != test.want {
				t.Errorf("got %v, until %v", got, i.Until())
			}
		})
	}
}

func TestAnAnswerEndsAnIsolation(t *testing.T) {
	i := cutOff(20, 20)
	i.Silence(101, 200, 1000)
	i.Answer(201)
	if i.Until() != 0 || i.Silence(202, 300, 1000) {
		t.Error("the engine is still cut off")
	}
	if !i.Silence(201, 300, 1000) {
		t.Error("an attempt that began while the engine was cut off counts")
	}
}
