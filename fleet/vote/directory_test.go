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

// All votes are counted again when there are other engines, or when others of them doubt, but not whenever one has
// other numbers.
func TestNumbersOfOthersChangeNoVotes(t *testing.T) {
	d := newDirectory()
	if voters, _ := d.getVoters(); voters != nil {
		t.Errorf("before the engines were read: %v", voters)
	}
	for _, c := range []struct {
		vantages map[string]Vantage
		isOther  bool
	}{
		{map[string]Vantage{}, true},
		{map[string]Vantage{"a": {}, "b": {}}, true},
		{map[string]Vantage{"a": {}, "b": {}}, false},
		{map[string]Vantage{"a": {Targets: 10, Failing: 3}, "b": {}}, false},
		{map[string]Vantage{"a": {Zone: "eu"}, "b": {}}, true},
		{map[string]Vantage{"a": {Zone: "eu", Doubtful: true}, "b": {}}, true},
		{map[string]Vantage{"a": {Zone: "eu", Doubtful: true}}, true},
	} {
		_, replaced := d.getVoters()
		if d.set(c.vantages); isClosed(replaced) != c.isOther {
			t.Errorf("%+v: others %v", c.vantages, isClosed(replaced))
		}
	}
}
