package httpgateway

import (
	"errors"
	"slices"
	"sync"

	"github.com/sonde-probe/sonde/group"
)

// maxHeld bounds the texts of answers that clients have not read yet, in bytes. A text counts once,
// however many clients are given it; one more is made while they are less.
const maxHeld = 64 << 20

// Bounds on answers that are kept for the next client.
const (
	maxLatest      = group.MaxGroups // queries
	maxLatestBytes = 16 << 20        // of texts, unless there is only one
)

// errTooManyAnswers rejects a request while clients read too many texts.
var errTooManyAnswers = errors.New("clients read too many different answers at once: ask again")

// answers holds the answers that are being given to clients, one for each query and state of groups,
// however many clients ask, and the latest ones of some queries: thousands of clients may wait for a change
// of a large group.
type answers struct {
	makingMu sync.Mutex // one text is made at a time: it takes several times the memory of the text

	heldMu sync.Mutex      // guards what follows
	all    []*sharedAnswer // oldest first
	held   int             // bytes of texts
}

// sharedAnswer is an answer with the number of those who use it.
type sharedAnswer struct {
	query string
	views []*group.View
	once  func() (*answer, error)

	users int // answers.heldMu guards it and size
	size  int // 0 until it is made
}

// get returns the answer to a query about some views, which of makes unless there is one, and a
// function to call when it is no longer used.
func (a *answers) get(query string, views []*group.View, of func() (*answer, error)) (*answer, func(), error) {
	s := a.join(query, views, of)
	made, err := s.once()
	if err != nil {
		a.leave(s)
		return nil, nil, err
	}
	return made, func() { a.leave(s) }, nil
}

func (a *answers) join(query string, views []*group.View, of func() (*answer, error)) *sharedAnswer {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	at := slices.IndexFunc(a.all, func(s *sharedAnswer) bool { return s.query == query && slices.Equal(s.views, views) })
	if at < 0 {
		s := &sharedAnswer{query: query, views: views}
		s.once = sync.OnceValues(func() (*answer, error) { return a.make(s, of) })
		at, a.all = len(a.all), append(a.all, s)
	}
	a.all[at].users++
	return a.all[at]
}

// make makes an answer, which stays as the latest of its query.
func (a *answers) make(s *sharedAnswer, of func() (*answer, error)) (*answer, error) {
	a.makingMu.Lock()
	defer a.makingMu.Unlock()
	if !a.hasRoom() {
		return nil, errTooManyAnswers
	}
	made, err := of()
	if err != nil {
		return nil, err
	}
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	s.size = len(made.text)
	a.held += s.size
	a.trim(maxLatest)
	return made, nil
}

// hasRoom reports whether another answer may be made, after it has dropped those that nobody uses if clients need their
// room.
func (a *answers) hasRoom() bool {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	if a.held >= maxHeld {
		a.trim(0)
	}
	return a.held < maxHeld
}

// trim drops answers that nobody uses: all but the latest of each query, and the oldest of these beyond a number or
// maxLatestBytes. It needs heldMu.
func (a *answers) trim(most int) {
	latest, bytes := map[string]bool{}, 0
	for i, s := range slices.Backward(a.all) {
		isStale := latest[s.query]
		if !isStale {
			latest[s.query] = true
			bytes += s.size
		}
		if s.users == 0 && (isStale || len(latest) > most || bytes > maxLatestBytes && len(latest) > 1) {
			a.held -= s.size
			a.all[i] = nil
		}
	}
	a.all = slices.DeleteFunc(a.all, func(s *sharedAnswer) bool { return s == nil })
}

func (a *answers) leave(s *sharedAnswer) {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	s.users--
	switch {
	case s.users > 0:
	case s.size == 0: // it could not be made
		a.all = slices.DeleteFunc(a.all, func(other *sharedAnswer) bool { return other == s })
	default:
		a.trim(maxLatest)
	}
}
