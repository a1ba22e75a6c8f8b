package gateway

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
)

// makes returns what makes an answer of a size, and counts how often it does.
func makes(size int, made *atomic.Int64) func() (Answer, error) {
	return func() (Answer, error) {
		made.Add(1)
		return Answer{Text: make([]byte, size)}, nil
	}
}

func TestAnAnswerIsMadeOnceForAllWhoAsk(t *testing.T) {
	var s Session
	var made atomic.Int64
	first, second := []*group.View{{}}, []*group.View{{}}
	const clients = 100
	var asking, given sync.WaitGroup
	given.Add(2 * clients)
	for i := range 2 * clients {
		asking.Go(func() {
			_, release, err := s.Share([]string{"a", "b"}[i%2], first, makes(1, &made))
			given.Done()
			if err != nil {
				t.Error(err)
				return
			}
			given.Wait() // until all have it
			release()
		})
	}
	asking.Wait()
	if made.Load() != 2 || s.answers.held != 2 || len(s.answers.shared) != 2 {
		t.Errorf("answers to two queries were made %d times; %d bytes are held for %d queries", made.Load(), s.answers.held, len(s.answers.shared))
	}
	for _, want := range []int64{3, 3, 4} { // the latest one is kept
		views := map[int64][]*group.View{3: second, 4: first}[want]
		if _, release, err := s.Share("a", views, makes(1, &made)); err != nil || made.Load() != want {
			t.Errorf("the answer was made %d times, want %d: %v", made.Load(), want, err)
		} else {
			release()
		}
	}
}

// A change of one group makes no other answer again, and what is kept is bounded.
func TestTheLatestAnswersToSeveralQueriesAreKept(t *testing.T) {
	var s Session
	var made atomic.Int64
	ask := func(query string, views []*group.View, size int) {
		t.Helper()
		_, release, err := s.Share(query, views, makes(size, &made))
		if err != nil {
			t.Fatal(err)
		}
		release()
	}
	a, b, changed := []*group.View{{}}, []*group.View{{}}, []*group.View{{}}
	ask("a", a, 1)
	ask("b", b, 1)
	ask("a", changed, 1)
	if ask("b", b, 1); made.Load() != 3 {
		t.Errorf("answers were made %d times, want 3", made.Load())
	}
	for i := range 2 * maxLatest {
		ask("small "+strconv.Itoa(i), a, 1)
	}
	if s.answers.held != maxLatest || len(s.answers.shared) != maxLatest {
		t.Errorf("%d bytes are held for %d queries, want %d", s.answers.held, len(s.answers.shared), maxLatest)
	}
	ask("large", a, maxLatestBytes)
	ask("larger", a, maxLatestBytes+1)
	if s.answers.held != maxLatestBytes+1 || len(s.answers.shared) != 1 {
		t.Errorf("%d bytes are held for %d queries, want those of the latest", s.answers.held, len(s.answers.shared))
	}
}

func TestTextsThatClientsReadAreBounded(t *testing.T) {
	var s Session
	var made atomic.Int64
	var releases []func()
	for i := range 10 {
		_, release, err := s.Share(string(rune('a'+i)), nil, makes(maxHeld/4, &made))
		if err == nil {
			releases = append(releases, release)
		} else if !errors.Is(err, errTooManyAnswers) {
			t.Fatal(err)
		}
	}
	if len(releases) != 4 || s.answers.held != maxHeld || made.Load() != 4 {
		t.Errorf("%d answers of %d bytes are given, %d were made", len(releases), s.answers.held, made.Load())
	}
	if _, release, err := s.Share("a", nil, makes(1, &made)); err != nil {
		t.Errorf("an answer that others read is not given: %v", err)
	} else {
		release()
	}
	for _, release := range releases {
		release()
	}
	if _, release, err := s.Share("z", nil, makes(1, &made)); err != nil || s.answers.held != 1 || len(s.answers.shared) != 1 {
		t.Errorf("afterwards: %v, %d bytes are held for %d queries", err, s.answers.held, len(s.answers.shared))
	} else {
		release()
	}
	failed := errors.New("no answer")
	if _, _, err := s.Share("y", nil, func() (Answer, error) { return Answer{}, failed }); !errors.Is(err, failed) || s.answers.held != 1 || len(s.answers.shared) != 1 {
		t.Errorf("an error is %v; %d bytes are held for %d queries", err, s.answers.held, len(s.answers.shared))
	}
}

// deadlines is a ResponseWriter that notes the deadlines of its writes.
type deadlines struct {
	*httptest.ResponseRecorder
	writes []time.Duration
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.writes = append(d.writes, time.Until(at))
	return nil
}

func TestClientsHaveLittleTimeToReadAPartOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		if !Write(w, make([]byte, 1<<20)) || w.Body.Len() != 1<<20 || w.Result().Header.Get("Content-Length") != "1048576" {
			t.Errorf("%d bytes were written: %v", w.Body.Len(), w.Result().Header)
		}
		if len(w.writes) < 10 {
			t.Errorf("1 MiB was written in %d parts", len(w.writes))
		}
		for _, within := range w.writes {
			if within <= 0 || within > listener.StallTimeout {
				t.Errorf("a part may take %v", within)
			}
		}
	})
}

func TestARequestWithoutAnAnswerIsMadeAgain(t *testing.T) {
	s := newSession("edge", Spec{}, slog.New(slog.DiscardHandler))
	w := httptest.NewRecorder()
	if s.Busy(w, errTooManyAnswers); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || s.Status().Errors != 1 {
		t.Errorf("%d %v %+v", w.Code, w.Header(), s.Status())
	}
}
