package vote

import "testing"

// isClosed reports whether a channel is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// All votes are counted again when other engines doubt, but not whenever one has other numbers.
func TestNumbersOfOthersChangeNoDoubts(t *testing.T) {
	d := newDirectory()
	d.set(map[string]Vantage{"a": {}, "b": {}})
	for _, c := range []struct {
		vantages        map[string]Vantage
		isOther, doubts bool
	}{
		{map[string]Vantage{"a": {}, "b": {}}, false, false},
		{map[string]Vantage{"a": {Targets: 10, Failing: 3}, "b": {}}, true, false},
		{map[string]Vantage{"a": {Targets: 10, Failing: 3}}, true, false},
		{map[string]Vantage{"a": {Doubtful: true}}, true, true},
		{map[string]Vantage{"a": {Doubtful: true}, "b": {}}, true, false},
		{map[string]Vantage{"b": {}}, true, true},
	} {
		_, replaced := d.get()
		_, doubts := d.getDoubtful()
		if d.set(c.vantages); isClosed(replaced) != c.isOther || isClosed(doubts) != c.doubts {
			t.Errorf("%+v: others %v, doubts %v", c.vantages, isClosed(replaced), isClosed(doubts))
		}
	}
}
