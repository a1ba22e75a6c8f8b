package fleet

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/wake"
)

// Memories that could not be stored are stored together with later changes.
func TestChangesThatArePutBackAreAddedToLaterOnes(t *testing.T) {
	in, other := shard.Of("web"), shard.Of("db")
	second := ""
	for i := 0; second == "" || shard.Of(second) != in; i++ {
		second = fmt.Sprint("web-", i)
	}
	c := newChanges(wake.New())
	c.note("web")
	c.note("db")
	taken := c.take([]shard.ID{in})
	if !maps.Equal(taken[in], names{"web": true}) || len(taken) != 1 {
		t.Errorf("of the shard of web were taken %v", taken)
	}
	c.note(second)
	c.noteShard(other)
	c.putBack(map[shard.ID]names{in: taken[in], other: {"db": true}})
	all := c.take(nil)
	if !maps.Equal(all[in], names{"web": true, second: true}) {
		t.Errorf("of the shard of web are to be stored %v, want both targets", all[in])
	}
	if targets, isMarked := all[other]; !isMarked || targets != nil {
		t.Errorf("of the shard of db are to be stored %v, want all", targets)
	}
	c.note("web")
	c.putBack(map[shard.ID]names{in: nil})
	if targets, isMarked := c.take(nil)[in]; !isMarked || targets != nil {
		t.Errorf("of the shard of web are to be stored %v, want all", targets)
	}
	c.note("web")
	c.forget(in)
	if rest := c.take(nil); len(rest) != 0 {
		t.Errorf("to be stored are %v, want none", rest)
	}
}
