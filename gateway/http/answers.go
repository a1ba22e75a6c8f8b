package httpgateway

import (
	"errors"
	"slices"
	"sync"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// maxHeld bounds the texts of answers that clients have not read yet, in bytes. A text counts once,
// however many clients are given it; one more is made while they are less.
const maxHeld = 64 << 20

// Bounds on answers that are kept for the next client.
const (
	maxLatest      = probe.MaxGroups // queries
	maxLatestBytes = 16 << 20        // of texts, unless there is only one
)

// errTooManyAnswers rejects a request while clients read too many texts.
var errTooManyAnswers = errors.New("clients are reading too many different answers: retry later")

// answers holds the answers that are being given to clients, one for each query and state of groups,
// however many clients ask, and the latest ones of some queries: thousands of clients may wait for a change
// of a large group.
type answers struct {
	heldMu sync.Mutex      // guards what follows, and that one answer is made at a time: it takes several times the memory of its text
	all    []*sharedAnswer // oldest first
	held   int             // bytes of texts
}

// sharedAnswer is an answer with the number of those who use it.
type sharedAnswer struct {
	*answer
	query string
	views []*group.View
	users int
}

// get returns the answer to a query about some views, which of makes unless there is one, and a
// function to call when it is no longer used.
func (a *answers) get(query string, views []*group.View, of func() (*answer, error)) (*answer, func(), error) {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	at := slices.IndexFunc(a.all, func(s *sharedAnswer) bool { return s.query == query && slices.Equal(s.views, views) })
	if at >= 0 {
		s := a.all[at]
		s.users++
		return s.answer, func() { a.leave(s) }, nil
	}
	if a.held >= maxHeld { // clients need the room of those that nobody uses
		a.trim(0)
	}
	if a.held >= maxHeld {
		return nil, nil, errTooManyAnswers
	}
	made, err := of()
	if err != nil {
		return nil, nil, err
	}
	s := &sharedAnswer{answer: made, query: query, views: views, users: 1}
	a.all = append(a.all, s)
	a.held += len(s.text)
	a.trim(maxLatest)
	return made, func() { a.leave(s) }, nil
}

func (a *answers) leave(s *sharedAnswer) {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	if s.users--; s.users == 0 {
		a.trim(maxLatest)
	}
}

// trim drops answers that nobody uses: all but the latest of each query, and the oldest of these beyond a number or
// maxLatestBytes. It needs heldMu.
func (a *answers) trim(most int) {
	latest, bytes := map[string]bool{}, 0
	for i, s := range slices.Backward(a.all) {
		isStale := latest[s.query]
		if !isStale {
			latest[s.query] = true
			bytes += len(s.text)
		}
		if s.users == 0 && (isStale || len(latest) > most || bytes > maxLatestBytes && len(latest) > 1) {
			a.held -= len(s.text)
			a.all[i] = nil
		}
	}
	a.all = slices.DeleteFunc(a.all, func(s *sharedAnswer) bool { return s == nil })
}
