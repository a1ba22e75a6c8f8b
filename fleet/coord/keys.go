package coord

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// layout is the version of the keys and values that engines share. A release that engines of an earlier one cannot read has the
// next one.
const layout = 1

// CheckLayout returns an error if a later release of Sonde has written what is in a Backend.
func CheckLayout(ctx context.Context, b Backend) error {
	e, err := b.Get(ctx, keyLayout)
	if err != nil || e.Created == 0 {
		return err
	}
	if n, err := strconv.Atoi(string(e.Value)); err != nil || n < 1 || n > layout {
		return fmt.Errorf("etcd has the layout %.20q of a later version of Sonde, and this one knows layouts up to %d: update this program", e.Value, layout)
	}
	return nil
}

// claimLayout is CheckLayout for an engine that is about to join, which is the first to write if there is no layout.
func claimLayout(ctx context.Context, b Backend) error {
	if err := CheckLayout(ctx, b); err != nil {
		return err
	}
	_, err := b.Commit(ctx, Transaction{
		If:   []Condition{{Key: keyLayout}},
		Then: []Change{{Key: keyLayout, Value: []byte(strconv.Itoa(layout))}},
	})
	return err
}

// The keys of a Backend.
const (
	keyLayout = "layout"       // the version of what follows
	keyFleet  = "fleet/"       // members, owners and drains, which the view shows
	keyMember = "fleet/m/"     // and the name of an engine: a member, as member.String
	keyShard  = "fleet/shard/" // and a shard: its owner, as owner.String
	keyDrain  = "fleet/drain/" // and the name of an engine: a Drain as JSON, which has no lease
	keyMemory = "memory/"      // and a shard: the loaded mark, see MarkLoaded; and a shard, a slash, and a target: the memory of that
	keyPause  = "pause/"       // and a shard, a slash, and a target: a Pause
	keyAct    = "act/"         // and a shard, a slash, and a target: a record

	// KeyVote and the name of an engine are the key of its Vantage; these, a slash and a target are the key of its votes about
	// the target (package fleet). Both are under the lease of the engine's membership.
	KeyVote = "vote/"

	// KeyOpinion and the name of an engine are the key of its latest questions and answers, under the same lease (package fleet).
	KeyOpinion = "opinion/"

	// KeyFloor and the name of a group, escaped, are the key of the restarts that are reserved there (package fleet).
	KeyFloor = "floor/"

	KeyConfig      = "config/shared/" // what package revision has of pushed configurations, which engines watch
	KeyConfigFiles = "config/files/"  // and of their files
)

func shardKey(id shard.ID) string { return keyShard + id.String() }

// Owns is the condition that an engine has a shard by a token.
func Owns(id shard.ID, token Revision) Condition { return Condition{Key: shardKey(id), Created: token} }

// targetKey returns the key of what is stored of a target: a prefix, the target's shard, a slash, and the target.
func targetKey(prefix, target string) string {
	return prefix + shard.Of(target).String() + "/" + target
}

// targetOf returns the target whose targetKey is key. It returns false for any other key, such as that of a loaded mark,
// or one that no engine has put, with a target in the shard of others.
func targetOf(key, prefix string) (target string, ok bool) {
	_, target, ok = strings.Cut(strings.TrimPrefix(key, prefix), "/")
	return target, ok && key == targetKey(prefix, target)
}
