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

	heldMu sync.Mutex // guards what follows
	shared map[string]*sharedAnswer
	latest []*sharedAnswer // one for each query at most, oldest first; each counts as used
	held   int             // bytes of texts
}

// sharedAnswer is an answer with the number of those who use it.
type sharedAnswer struct {
	query string
	views []*group.View
	once  func() (*answer, error)

	users int // answers.heldMu guards it and size
	size  int
}

// get returns the answer to a query about some views, which of makes unless a client has it, and a
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
	s := a.shared[query]
	if s == nil || !slices.Equal(s.views, views) {
		s = &sharedAnswer{query: query, views: views}
		s.once = sync.OnceValues(func() (*answer, error) { return a.make(s, of) })
		if a.shared == nil {
			a.shared = map[string]*sharedAnswer{}
		}
		a.shared[query] = s
	}
	s.users++
	return s
}

// make makes an answer, and keeps it as the latest of its query.
func (a *answers) make(s *sharedAnswer, of func() (*answer, error)) (*answer, error) {
	a.makingMu.Lock()
	defer a.makingMu.Unlock()
	if !a.hasRoom(s.query) {
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
	s.users++
	a.latest = append(a.latest, s)
	sum := 0
	for _, kept := range a.latest {
		sum += kept.size
	}
	for len(a.latest) > maxLatest || sum > maxLatestBytes && len(a.latest) > 1 {
		sum -= a.latest[0].size
		a.dropLatest(func(kept *sharedAnswer) bool { return kept == a.latest[0] })
	}
	return made, nil
}

// hasRoom drops the latest answer to a query, and all latest ones if clients need their room. It
// reports whether another one may be made.
func (a *answers) hasRoom(query string) bool {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	a.dropLatest(func(kept *sharedAnswer) bool { return kept.query == query })
	if a.held >= maxHeld {
		a.dropLatest(func(*sharedAnswer) bool { return true })
	}
	return a.held < maxHeld
}

// dropLatest drops some of the latest answers. It needs heldMu.
func (a *answers) dropLatest(which func(*sharedAnswer) bool) {
	var others []*sharedAnswer
	for _, s := range a.latest {
		if which(s) {
			a.drop(s)
		} else {
			others = append(others, s)
		}
	}
	a.latest = others
}

func (a *answers) leave(s *sharedAnswer) {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	a.drop(s)
}

// drop needs heldMu.
func (a *answers) drop(s *sharedAnswer) {
	if s.users--; s.users > 0 {
		return
	}
	a.held -= s.size
	if a.shared[s.query] == s {
		delete(a.shared, s.query)
	}
}
