package coord

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// layout is the version of the keys and values that engines share. A release increments it if engines of earlier
// releases cannot read its entries.
const layout = 1

// CheckLayout returns an error if the entries of a Backend were written by a later release of Sonde or by another
// program.
func CheckLayout(ctx context.Context, b Backend) error {
	e, err := b.Get(ctx, keyLayout)
	if err != nil || e.Created == 0 {
		return err
	}
	return checkLayout(e.Value)
}

// layoutError is the reason why this release does not use a Backend.
type layoutError string

// Error implements error.
func (e layoutError) Error() string { return string(e) }

// checkLayout returns a layoutError for a layout that this release does not support.
func checkLayout(value []byte) error {
	switch n, err := strconv.Atoi(string(value)); {
	case err != nil, n < 1:
		return layoutError(fmt.Sprintf("invalid layout %.20q in etcd: check the prefix in the cluster block, or write %d to the key layout", value, layout))
	case n > layout:
		return layoutError(fmt.Sprintf("unsupported layout %d in etcd, written by a later version of Sonde: this version supports layouts up to %d; update this program", n, layout))
	}
	return nil
}

// claimLayout does CheckLayout for an engine that is about to join. If there is no layout yet, it writes one.
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

// The keys of a Backend that this package reads itself.
const (
	keyLayout = "layout"       // the version of all other keys and values
	keyFleet  = "fleet/"       // members, owners and drains, which the view shows
	keyMember = "fleet/m/"     // plus an engine name: a member, as member.String
	keyShard  = "fleet/shard/" // plus a shard: its owner, as owner.String
	keyDrain  = "fleet/drain/" // plus an engine name: a Drain as JSON, without a lease
	keyMark   = "memory/"      // plus a shard: the loaded mark, see MarkLoaded
)

// Keys are the keys of one kind of entries: a prefix and a name.
type Keys struct {
	prefix string
	encode func(name string) string // returns the part after the prefix; nil: the name
	decode func(text string) string // its inverse; arbitrary for a text that no name is encoded as
}

// The kinds of entries. Engines mirror the exported ones: see Mirror.
var (
	actKeys = Keys{"act/", NameOf, targetIn} // by target: the record of its latest restart

	MemoryKeys  = Keys{prefix: keyMark}                    // by shard: the token of the owner that marked it as loaded, see ParseMark; by NameOf(target): the memory of the target (package fleet)
	PauseKeys   = Keys{"pause/", NameOf, targetIn}         // by target: its pause by an operator (package pause)
	FloorKeys   = Keys{"floor/", url.PathEscape, unescape} // by group: the reserved restarts of its members (package fleet)
	VoteKeys    = Keys{prefix: "vote/"}                    // by engine: its status, and by engine/target: its votes; with the lease of its membership (package fleet)
	OpinionKeys = Keys{prefix: "opinion/"}                 // by engine: its latest questions and answers, with the same lease (package fleet)
	ConfigKeys  = Keys{prefix: "config/shared/"}           // pushed configurations, and the engines' status (package revision)
	FileKeys    = Keys{prefix: "config/files/"}            // the files of these configurations, which are read when needed
)

// Key returns the key of a name.
func (k Keys) Key(name string) string {
	if k.encode != nil {
		name = k.encode(name)
	}
	return k.prefix + name
}

// Prefix returns the common prefix of all keys.
func (k Keys) Prefix() string { return k.prefix }

// name returns the name whose Key is key. It returns false for any other key, such as one that no engine has put.
func (k Keys) name(key string) (name string, ok bool) {
	if name = strings.TrimPrefix(key, k.prefix); k.decode != nil {
		name = k.decode(name)
	}
	return name, name != "" && k.Key(name) == key
}

// isOf reports whether a name equals another one, or begins with it and a slash.
func isOf(name, other string) bool {
	rest, ok := strings.CutPrefix(name, other)
	return ok && (rest == "" || rest[0] == '/')
}

func unescape(text string) string {
	name, _ := url.PathUnescape(text)
	return name
}

// NameOf returns the name of a target qualified by its shard: the shard, a slash, and the target.
func NameOf(target string) string { return shard.Of(target).String() + "/" + target }

// TargetOf returns the target whose NameOf is name. It returns false for any other name: that of a shard, or one that no
// engine has put, in which the target does not belong to the shard.
func TargetOf(name string) (target string, ok bool) {
	target = targetIn(name)
	return target, NameOf(target) == name
}

func targetIn(name string) string {
	_, target, _ := strings.Cut(name, "/")
	return target
}

func shardKey(id shard.ID) string { return keyShard + id.String() }

// Owns returns the condition that the owner of a shard has a token.
func Owns(id shard.ID, token Revision) Condition { return Condition{Key: shardKey(id), Created: token} }
