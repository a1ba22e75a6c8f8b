package store

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// shop is a part of a program whose state is a stock by name, and whether the shop is open.
type shop struct {
	stock map[string]int
	open  bool
	shift time.Duration
}

func (s *shop) subjects() Subjects {
	return Subjects{
		{
			Prefix: "stock/", Lasting: true,
			Value: func(name string) (any, bool) { n, ok := s.stock[name]; return n, ok },
			Names: func() []string { return slices.Collect(maps.Keys(s.stock)) },
			Restore: RestoreAll(func(all map[string]int, shift time.Duration) {
				s.stock, s.shift = all, shift
			}),
		},
		{
			Prefix:  "open",
			Value:   func(string) (any, bool) { return s.open, s.open },
			Restore: RestoreAll(func(all map[string]bool, _ time.Duration) { s.open = all[""] }),
		},
		{Prefix: "place", Lasting: true, Value: func(string) (any, bool) { return "corner", true }},
	}
}

func TestSubjectsGetBackWhatTheyHaveStored(t *testing.T) {
	before := &shop{stock: map[string]int{"tea": 3, "": 1, "a/b": 2}, open: true}
	stored := maps.Collect(before.subjects().Values())
	want := []string{"open=true", `place="corner"`, "stock/=1", "stock/a/b=2", "stock/tea=3"}
	var got []string
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		value, ok := before.subjects().Value(key)
		if !ok || string(value) != string(stored[key]) {
			t.Errorf("the value of %s is %q and %q", key, value, stored[key])
		}
		got = append(got, key+"="+string(value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the values are %q, want %q", got, want)
	}
	after := &shop{}
	after.subjects().Restore(Restored{Values: stored, Shift: time.Hour}, slog.New(slog.DiscardHandler))
	if !maps.Equal(after.stock, before.stock) || !after.open || after.shift != time.Hour {
		t.Errorf("got back %+v, want %+v", after, before)
	}
}

func TestAKeyIsOfOneSubject(t *testing.T) {
	all := (&shop{stock: map[string]int{"tea": 3}, open: true}).subjects()
	for key, want := range map[string]bool{"stock/tea": true, "stock/milk": false, "stock": false, "open": true, "opening": false, "open/": false, "other": false} {
		if _, ok := all.Value(key); ok != want {
			t.Errorf("%s has a value: %t, want %t", key, ok, want)
		}
	}
	if got, want := all.Lasting(), []string{"stock/", "place"}; !slices.Equal(got, want) {
		t.Errorf("%q last, want %q", got, want)
	}
}

func TestAValueThatCannotBeReadIsLeftOut(t *testing.T) {
	var log strings.Builder
	s := &shop{}
	s.subjects().Restore(Restored{Values: map[string][]byte{"stock/tea": []byte("3"), "stock/milk": []byte("many"), "unknown": []byte("1")}}, slog.New(slog.NewTextHandler(&log, nil)))
	if !maps.Equal(s.stock, map[string]int{"tea": 3}) {
		t.Errorf("got back %v", s.stock)
	}
	for _, want := range []string{"unreadable state discarded", "subject=stock", "milk: "} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log has more than a line:\n%s", log.String())
	}
}

// A part without stored values keeps its state.
func TestASubjectWithoutValuesIsNotRestored(t *testing.T) {
	s := &shop{stock: map[string]int{"tea": 3}}
	s.subjects().Restore(Restored{Values: map[string][]byte{"open": []byte("true")}}, slog.New(slog.DiscardHandler))
	if !s.open || s.stock["tea"] != 3 {
		t.Errorf("got %+v", s)
	}
}
