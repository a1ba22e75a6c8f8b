package coord

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// layout is the version of the keys and values that engines share. A release that engines of an earlier one cannot read has the
// next one.
const layout = 1

// CheckLayout returns an error if a later release of Sonde, or another program, has written what is in a Backend.
func CheckLayout(ctx context.Context, b Backend) error {
	e, err := b.Get(ctx, keyLayout)
	if err != nil || e.Created == 0 {
		return err
	}
	return checkLayout(e.Value)
}

// layoutError says why this release does not use a Backend.
type layoutError string

// Error implements error.
func (e layoutError) Error() string { return string(e) }

// checkLayout returns a layoutError for a layout that this release does not know.
func checkLayout(value []byte) error {
	switch n, err := strconv.Atoi(string(value)); {
	case err != nil, n < 1:
		return layoutError(fmt.Sprintf("etcd has %.20q as its layout, which no version of Sonde writes: check the prefix in the cluster block, or write %d to the key layout", value, layout))
	case n > layout:
		return layoutError(fmt.Sprintf("etcd has the layout %d of a later version of Sonde, and this one knows layouts up to %d: update this program", n, layout))
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

// The keys of a Backend that this package reads by itself.
const (
	keyLayout = "layout"       // the version of what follows
	keyFleet  = "fleet/"       // members, owners and drains, which the view shows
	keyMember = "fleet/m/"     // and the name of an engine: a member, as member.String
	keyShard  = "fleet/shard/" // and a shard: its owner, as owner.String
	keyDrain  = "fleet/drain/" // and the name of an engine: a Drain as JSON, which has no lease
	keyMark   = "memory/"      // and a shard: the loaded mark, see MarkLoaded
)

// Keys are the keys of the entries of one kind: a prefix and a name.
type Keys struct {
	prefix string
	encode func(name string) string // what follows the prefix; nil: the name
	decode func(text string) string // its inverse; of a text that no name has, any name
}

// The kinds. Engines mirror those that are exported: see Mirror.
var (
	actKeys = Keys{"act/", NameOf, targetIn} // by target: the record of its latest restart

	MemoryKeys  = Keys{prefix: keyMark}                    // by shard: the token of the owner that has marked it as loaded, see ParseMark; by NameOf a target: its memory (package fleet)
	PauseKeys   = Keys{"pause/", NameOf, targetIn}         // by target: its pause by an operator (package pause)
	FloorKeys   = Keys{"floor/", url.PathEscape, unescape} // by group: the restarts that are reserved there (package fleet)
	VoteKeys    = Keys{prefix: "vote/"}                    // by engine: what it says of itself, and by engine, slash, and target: its votes; with the lease of its membership (package fleet)
	OpinionKeys = Keys{prefix: "opinion/"}                 // by engine: its latest questions and answers, with the same lease (package fleet)
	ConfigKeys  = Keys{prefix: "config/shared/"}           // pushed configurations, and what engines say of them (package revision)
	FileKeys    = Keys{prefix: "config/files/"}            // and their files, which are read when they are needed
)

// Key returns the key of a name.
func (k Keys) Key(name string) string {
	if k.encode != nil {
		name = k.encode(name)
	}
	return k.prefix + name
}

// Prefix returns how all keys begin.
func (k Keys) Prefix() string { return k.prefix }

// name returns the name of which key is the Key. It returns false for any other key, such as one that no engine has put.
func (k Keys) name(key string) (name string, ok bool) {
	if name = strings.TrimPrefix(key, k.prefix); k.decode != nil {
		name = k.decode(name)
	}
	return name, name != "" && k.Key(name) == key
}

// isOf reports whether a name is another one, or begins with it and a slash.
func isOf(name, other string) bool {
	rest, ok := strings.CutPrefix(name, other)
	return ok && (rest == "" || rest[0] == '/')
}

func unescape(text string) string {
	name, _ := url.PathUnescape(text)
	return name
}

// NameOf returns the name of a target with that of its shard: the shard, a slash, and the target.
func NameOf(target string) string { return shard.Of(target).String() + "/" + target }

// TargetOf returns the target of which a name is the NameOf, and false for any other name: that of a shard, or one that no engine
// has put, with a target in the shard of others.
func TargetOf(name string) (target string, ok bool) {
	target = targetIn(name)
	return target, NameOf(target) == name
}

func targetIn(name string) string {
	_, target, _ := strings.Cut(name, "/")
	return target
}

func shardKey(id shard.ID) string { return keyShard + id.String() }

// Owns is the condition that an engine has a shard by a token.
func Owns(id shard.ID, token Revision) Condition { return Condition{Key: shardKey(id), Created: token} }
