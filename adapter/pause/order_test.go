package pause

import (
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/coord"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// numbered returns an order of an author, which pauses a target for a time: 0 for an end, forever without one.
func numbered(author string, number int64, d time.Duration) Order {
	o := Order{Pause: Pause{At: noon, By: "alice"}, Author: author, Number: number, Base: number - 1, Known: number - 1}
	switch d {
	case 0:
		o.IsEnd = true
	case forever:
	default:
		o.Until = noon.Add(d)
	}
	return o
}

const forever = time.Duration(1<<63 - 1)

func TestWhichOrderCounts(t *testing.T) {
	const me, other, later = "me/1", "other/1", 7
	saved := func(o Order) record { return record{latest: o, modified: 3} }
	unsaved := func(o Order) record { return record{latest: o, unsaved: true, modified: 3} }
	rebased := func(o Order, number int64) Order {
		o.Number, o.Base, o.Known, o.KnownAuthor = number, number-1, number-1, other
		return o
	}
	earlier := func(o Order) Order { // based on one before
		o.Base--
		return o
	}
	unaware := func(o Order) Order { // the store had lost what others know
		o.Base, o.Known = 1, 1
		return o
	}
	after := func(o Order, author string) Order {
		o.KnownAuthor = author
		return o
	}
	for name, c := range map[string]struct {
		before     record
		stored     Order
		want       Order
		isUnsaved  bool
		wantGiveUp bool
	}{
		"the first":                         {record{}, numbered(other, 1, time.Hour), numbered(other, 1, time.Hour), false, false},
		"the next":                          {saved(numbered(me, 1, time.Hour)), numbered(other, 2, 0), numbered(other, 2, 0), false, false},
		"it is stored":                      {unsaved(numbered(me, 2, time.Hour)), numbered(me, 2, time.Hour), numbered(me, 2, time.Hour), false, false},
		"it is not stored yet":              {unsaved(numbered(me, 2, 0)), numbered(other, 1, forever), numbered(me, 2, 0), true, false},
		"one after it is stored":            {unsaved(numbered(me, 2, forever)), after(numbered(other, 3, 0), me), after(numbered(other, 3, 0), me), false, false},
		"one before it is stored":           {unsaved(earlier(numbered(me, 4, 0))), numbered(me, 3, forever), earlier(numbered(me, 4, 0)), true, false},
		"another pauses longer":             {unsaved(numbered(me, 2, time.Minute)), numbered(other, 2, time.Hour), numbered(other, 2, time.Hour), false, true},
		"another pauses, it ends one":       {unsaved(numbered(me, 2, 0)), numbered(other, 5, time.Hour), numbered(other, 5, time.Hour), false, true},
		"another pauses without an end":     {unsaved(numbered(me, 2, time.Hour)), numbered(other, 2, forever), numbered(other, 2, forever), false, true},
		"another pauses for less":           {unsaved(numbered(me, 2, time.Hour)), numbered(other, 4, time.Minute), rebased(numbered(me, 5, time.Hour), 5), true, false},
		"another ends one":                  {unsaved(numbered(me, 2, forever)), numbered(other, 2, 0), rebased(numbered(me, 3, forever), 3), true, false},
		"another pauses as long":            {unsaved(numbered(me, 2, time.Hour)), numbered(other, 2, time.Hour), rebased(numbered(me, 3, time.Hour), 3), true, false},
		"another has ended by itself":       {unsaved(numbered(me, 2, 0)), numbered(other, 2, -time.Hour), rebased(numbered(me, 3, 0), 3), true, false},
		"it has ended by itself":            {unsaved(numbered(me, 2, -time.Minute)), numbered(other, 2, time.Hour), numbered(other, 2, time.Hour), false, true},
		"an earlier start of the engine":    {unsaved(numbered(me, 1, time.Minute)), numbered("me/0", 1, time.Hour), numbered("me/0", 1, time.Hour), false, true},
		"the store is older":                {saved(numbered(me, 5, time.Hour)), numbered(other, 2, 0), numbered(me, 5, time.Hour), true, false},
		"a shorter one without it":          {saved(numbered(me, 5, time.Hour)), unaware(numbered(other, 7, 0)), rebased(numbered(me, 5, time.Hour), 8), true, false},
		"a longer one without it":           {saved(numbered(me, 5, 0)), unaware(numbered(other, 7, time.Hour)), unaware(numbered(other, 7, time.Hour)), false, false},
		"the store has what cannot be read": {saved(numbered(me, 1, time.Hour)), Order{}, numbered(me, 1, time.Hour), true, false},
		"nothing that can be read":          {record{}, Order{}, Order{}, false, false},
	} {
		got, isGivenUp := c.before.see(c.stored, later, me, noon)
		if want := (record{c.want, c.isUnsaved, later}); got != want || isGivenUp != c.wantGiveUp {
			t.Errorf("%s:\ngot  %+v, given up %v\nwant %+v", name, got, isGivenUp, want)
		}
	}
}

func TestWhatIsMissingIsStoredAgain(t *testing.T) {
	pause, end := numbered("me/1", 4, time.Hour), numbered("me/1", 4, 0)
	for _, c := range []struct {
		name                   string
		before                 record
		whenMissing, ifDeleted record
	}{
		{"nothing", record{}, record{}, record{}},
		{"a pause", record{pause, false, 3}, record{pause, true, 0}, record{}},
		{"an end", record{end, false, 3}, record{end, true, 0}, record{}},
		{"a pause that is not stored", record{pause, true, 3}, record{pause, true, 0}, record{pause, true, 0}},
		{"an end that is not stored", record{end, true, 0}, record{end, true, 0}, record{end, true, 0}},
	} {
		if got := c.before.miss(); got != c.whenMissing {
			t.Errorf("%s, if it is missing: %+v, want %+v", c.name, got, c.whenMissing)
		}
		if got := c.before.drop(); got != c.ifDeleted {
			t.Errorf("%s, if it is deleted: %+v, want %+v", c.name, got, c.ifDeleted)
		}
	}
}

// Engines give the same number to different orders, but not in the name of the same engine.
func TestAnOrderThatIsNumberedAgainIsAnother(t *testing.T) {
	stored := numbered("other/1", 7, 0)
	theirs := record{latest: stored}.give(Order{IsEnd: true}, "they/1")
	ours, _ := record{latest: numbered("they/1", 5, forever), unsaved: true}.see(stored, 3, "me/1", noon)
	if ours.latest.Number != theirs.latest.Number || ours.latest.is(theirs.latest) {
		t.Errorf("%+v is the same order as %+v", ours.latest, theirs.latest)
	}
}

// An order is based on what is stored, however many orders have replaced each other meanwhile.
func TestOrdersAreNumbered(t *testing.T) {
	first := noon.UnixMilli()
	r := record{}.give(numbered("", 0, time.Hour), "me/1")
	if r.latest.Number != first || r.latest.Base != 0 || r.latest.Author != "me/1" || !r.unsaved {
		t.Errorf("the first is %+v", r)
	}
	r = r.give(numbered("", 0, 0), "me/1")
	if r.latest.Number != first+1 || r.latest.Base != 0 {
		t.Errorf("another before that is stored is %+v", r)
	}
	r, _ = r.see(r.latest, coord.Revision(9), "me/1", noon)
	r = r.give(numbered("", 0, time.Hour), "me/1")
	if r.latest.Number != first+2 || r.latest.Base != first+1 || r.modified != 9 {
		t.Errorf("one after that is stored is %+v", r)
	}
	r = r.give(Order{}, "me/1") // by a clock that is wrong
	if r.latest.Number != first+3 {
		t.Errorf("one before all others is %+v", r)
	}
}

// An engine recognizes its own orders, whatever its name is.
func TestOrdersOfAnyEngineAreRecognized(t *testing.T) {
	for _, name := range []string{"", "rack-1", strings.Repeat("n", coord.MaxName), strings.Repeat("\"", coord.MaxName), "rack  1 ", "a\xffb"} {
		if o := (record{}).give(numbered("", 0, time.Hour), newShared(name).author).latest; !unmarshal(o.marshal()).is(o) {
			t.Errorf("an order by %q is read as %+v", name, unmarshal(o.marshal()))
		}
	}
}
