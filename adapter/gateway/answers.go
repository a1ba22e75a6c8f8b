package gateway

import (
	"errors"
	"slices"
	"sync"

	"github.com/sonde-probe/sonde/group"
)

// maxHeld bounds the texts of answers that clients have not read yet, in bytes. A text counts once,
// however many clients are given it; one more is made while they are less.
const maxHeld = 64 << 20

// errTooManyAnswers rejects a request while clients read too many texts.
var errTooManyAnswers = errors.New("clients read too many different answers at once: ask again")

// Answer is what clients are given that ask for the same.
type Answer struct {
	Text     []byte           // which nobody changes
	Version  string           // for outputs that compare it with what a client has
	Problems map[string]error // by source: which members of a group Text lacks, or nil
}

// answers holds the answers that are being given to clients, and the latest one: one for each query
// and state of groups, however many clients ask.
type answers struct {
	makingMu sync.Mutex // one text is made at a time: it takes several times the memory of the text

	heldMu sync.Mutex // guards what follows
	shared map[string]*sharedAnswer
	latest *sharedAnswer
	held   int // bytes of texts
}

// sharedAnswer is an Answer with the number of those who use it.
type sharedAnswer struct {
	query string
	views []*group.View
	once  func() (Answer, error)

	users int // answers.heldMu guards it and size
	size  int
}

// get returns the answer to a query about some views, which of makes unless somebody has it, and a
// function to call when it is no longer used.
func (a *answers) get(query string, views []*group.View, of func() (Answer, error)) (Answer, func(), error) {
	s := a.join(query, views, of)
	answer, err := s.once()
	if err != nil {
		a.leave(s)
		return Answer{}, nil, err
	}
	return answer, func() { a.leave(s) }, nil
}

func (a *answers) join(query string, views []*group.View, of func() (Answer, error)) *sharedAnswer {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	s := a.shared[query]
	if s == nil || !slices.Equal(s.views, views) {
		s = &sharedAnswer{query: query, views: views}
		s.once = sync.OnceValues(func() (Answer, error) { return a.make(s, of) })
		if a.shared == nil {
			a.shared = map[string]*sharedAnswer{}
		}
		a.shared[query] = s
	}
	s.users++
	return s
}

// make makes an answer, and keeps it as the latest.
func (a *answers) make(s *sharedAnswer, of func() (Answer, error)) (Answer, error) {
	a.makingMu.Lock()
	defer a.makingMu.Unlock()
	if !a.hasRoom() {
		return Answer{}, errTooManyAnswers
	}
	answer, err := of()
	if err != nil {
		return Answer{}, err
	}
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	s.size = len(answer.Text)
	a.held += s.size
	s.users++
	a.latest = s
	return answer, nil
}

// hasRoom drops the latest answer, and reports whether another one may be made.
func (a *answers) hasRoom() bool {
	a.heldMu.Lock()
	defer a.heldMu.Unlock()
	if a.latest != nil {
		a.drop(a.latest)
		a.latest = nil
	}
	return a.held < maxHeld
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
