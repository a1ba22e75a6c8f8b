package httpgateway

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// makes returns what makes an answer of a size, and counts how often it does.
func makes(size int, made *atomic.Int64) func() (*answer, error) {
	return func() (*answer, error) {
		made.Add(1)
		return &answer{text: make([]byte, size)}, nil
	}
}

func TestAnAnswerIsMadeOnceForAllWhoAsk(t *testing.T) {
	var s answers
	var made atomic.Int64
	first, second := []*group.View{{}}, []*group.View{{}}
	const clients = 100
	var asking, given sync.WaitGroup
	given.Add(2 * clients)
	for i := range 2 * clients {
		asking.Go(func() {
			_, release, err := s.get([]string{"a", "b"}[i%2], first, makes(1, &made))
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
	if made.Load() != 2 || s.held != 2 || len(s.all) != 2 {
		t.Errorf("answers to two queries were made %d times; %d bytes are held for %d queries", made.Load(), s.held, len(s.all))
	}
	for _, want := range []int64{3, 3, 4} { // the latest one is kept
		views := map[int64][]*group.View{3: second, 4: first}[want]
		if _, release, err := s.get("a", views, makes(1, &made)); err != nil || made.Load() != want {
			t.Errorf("the answer was made %d times, want %d: %v", made.Load(), want, err)
		} else {
			release()
		}
	}
}

// A change of one group makes no other answer again, and what is kept is bounded.
func TestTheLatestAnswersToSeveralQueriesAreKept(t *testing.T) {
	var s answers
	var made atomic.Int64
	ask := func(query string, views []*group.View, size int) {
		t.Helper()
		_, release, err := s.get(query, views, makes(size, &made))
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
	if s.held != maxLatest || len(s.all) != maxLatest {
		t.Errorf("%d bytes are held for %d queries, want %d", s.held, len(s.all), maxLatest)
	}
	ask("large", a, maxLatestBytes)
	ask("larger", a, maxLatestBytes+1)
	if s.held != maxLatestBytes+1 || len(s.all) != 1 {
		t.Errorf("%d bytes are held for %d queries, want those of the latest", s.held, len(s.all))
	}
}

func TestTextsThatClientsReadAreBounded(t *testing.T) {
	var s answers
	var made atomic.Int64
	var releases []func()
	for i := range 10 {
		_, release, err := s.get(string(rune('a'+i)), nil, makes(maxHeld/4, &made))
		if err == nil {
			releases = append(releases, release)
		} else if !errors.Is(err, errTooManyAnswers) {
			t.Fatal(err)
		}
	}
	if len(releases) != 4 || s.held != maxHeld || made.Load() != 4 {
		t.Errorf("%d answers of %d bytes are given, %d were made", len(releases), s.held, made.Load())
	}
	if _, release, err := s.get("a", nil, makes(1, &made)); err != nil {
		t.Errorf("an answer that others read is not given: %v", err)
	} else {
		release()
	}
	for _, release := range releases {
		release()
	}
	if _, release, err := s.get("z", nil, makes(1, &made)); err != nil || s.held != 1 || len(s.all) != 1 {
		t.Errorf("afterwards: %v, %d bytes are held for %d queries", err, s.held, len(s.all))
	} else {
		release()
	}
	failed := errors.New("no answer")
	if _, _, err := s.get("y", nil, func() (*answer, error) { return nil, failed }); !errors.Is(err, failed) || s.held != 1 || len(s.all) != 1 {
		t.Errorf("an error is %v; %d bytes are held for %d queries", err, s.held, len(s.all))
	}
}

// A file has its text all the time: what kept it from being compared for a moment is over with that.
func TestAFileThatIsUpToDateHasNoFailure(t *testing.T) {
	dir := t.TempDir()
	s := Envoy{Directory: dir}.Output().(*server)
	scene := gatewaytest.New(t, group.Rule{Port: "80"}, map[string]string{"a": "10.0.0.1"})
	o := scene.RunOutput(func() gateway.Output { return s })
	scene.Say(map[string]probe.Outcome{"a": probe.Success})
	testsync.Until(t, "the file", func() bool { return o.Gateways.Statuses()[0].Outputs > 0 })
	a, release, err := s.answer(s.files.about(0))
	if err != nil {
		t.Fatal(err)
	}
	written := []string{a.version}
	release()
	fill := func(bytes int) {
		s.answers.heldMu.Lock()
		defer s.answers.heldMu.Unlock()
		s.answers.all, s.answers.held = nil, bytes
	}
	fill(maxHeld)
	if s.files.writeChanged(s, written) || !strings.Contains(o.Gateways.Statuses()[0].Error, errTooManyAnswers.Error()) {
		t.Fatalf("the status is %+v", o.Gateways.Statuses()[0])
	}
	fill(0)
	if !s.files.writeChanged(s, written) || o.Gateways.Statuses()[0].Error != "" {
		t.Errorf("afterwards the status is %+v", o.Gateways.Statuses()[0])
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
		if !write(w, &answer{text: make([]byte, 1<<20)}) || w.Body.Len() != 1<<20 || w.Result().Header.Get("Content-Length") != "1048576" {
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
	s := Oracle{Listen: "127.0.0.1:0"}.Output().(*server)
	o := gatewaytest.New(t, group.Rule{}, nil).Serve(func() gateway.Output { return s })
	for err, errors := range map[error]uint64{errUndecided: 0, errTooManyAnswers: 1} {
		before := o.Gateways.Statuses()[0].Errors
		w := httptest.NewRecorder()
		s.unavailable(w, err)
		if got := o.Gateways.Statuses()[0].Errors - before; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || got != errors {
			t.Errorf("%v: %d %v, errors: %d, want %d", err, w.Code, w.Header(), got, errors)
		}
	}
}
