package fleet

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sonde-probe/sonde/fleet/shard"
)

// observer follows the keys of a fleet by its own watch.
type observer struct {
	client *clientv3.Client
	prefix string

	seenMu  sync.Mutex // guards all below
	members map[string]clientv3.LeaseID
	owners  map[shard.ID]string  // engines by shard; none for a free shard
	claims  map[shard.ID][]claim // in order
	begun   map[string][]int64   // by instance: the revisions at which its restart was recorded as begun
	done    map[string]time.Time // by instance: when its restart was recorded as done
	changes int                  // number of changes of keys by engines
	seen    int64                // the revision of the latest change
	failed  error                // why the watch has ended
}

// claim records that an engine has become the owner of a shard.
type claim struct {
	engine   string
	revision int64
	at       time.Time // when it was observed, which is later than it happened
}

// observe follows the keys below a prefix until the test ends.
func observe(t *testing.T, client *clientv3.Client, prefix string) *observer {
	t.Helper()
	o := &observer{
		client: client, prefix: prefix, members: map[string]clientv3.LeaseID{}, owners: map[shard.ID]string{},
		claims: map[shard.ID][]claim{}, begun: map[string][]int64{}, done: map[string]time.Time{},
	}
	var watching sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	watching.Go(func() { o.watch(ctx) })
	t.Cleanup(func() { stop(); watching.Wait() })
	return o
}

// watch follows the keys from their first revision on, so that it misses no change.
func (o *observer) watch(ctx context.Context) {
	for response := range o.client.Watch(ctx, o.prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		at := time.Now()
		o.seenMu.Lock()
		if err := response.Err(); err != nil && ctx.Err() == nil {
			o.failed = err
		}
		for _, e := range response.Events {
			o.seen = e.Kv.ModRevision
			if string(e.Kv.Key) == o.prefix+ownKey {
				continue
			}
			o.changes++
			o.apply(strings.TrimPrefix(string(e.Kv.Key), o.prefix), e, at)
		}
		o.seenMu.Unlock()
	}
}

// ownKey is a key of the observer itself, unknown to engines.
const ownKey = "observer"

// hasCaughtUp reports whether all changes made before the call were observed. To find out, it changes a key.
func (o *observer) hasCaughtUp(wait time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	put, err := o.client.Put(ctx, o.prefix+ownKey, "")
	if err != nil {
		return false
	}
	for ctx.Err() == nil {
		o.seenMu.Lock()
		seen := o.seen
		o.seenMu.Unlock()
		if seen >= put.Header.Revision {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// apply records an event. The caller must hold seenMu.
func (o *observer) apply(key string, e *clientv3.Event, at time.Time) {
	isDeleted := e.Type == clientv3.EventTypeDelete
	if name, ok := strings.CutPrefix(key, "fleet/m/"); ok {
		if isDeleted {
			delete(o.members, name)
		} else {
			o.members[name] = clientv3.LeaseID(e.Kv.Lease)
		}
	}
	if text, ok := strings.CutPrefix(key, "fleet/shard/"); ok {
		n, _ := strconv.Atoi(text)
		id := shard.ID(n)
		delete(o.owners, id)
		if !isDeleted {
			engine, _, _ := strings.Cut(string(e.Kv.Value), "/")
			o.owners[id] = engine
			o.claims[id] = append(o.claims[id], claim{engine, e.Kv.ModRevision, at})
		}
	}
	if strings.HasPrefix(key, "act/") && !isDeleted {
		switch r, err := parseRecord(e.Kv.Value); {
		case err != nil: // not the record of a restart
		case r.Done:
			o.done[r.Instance] = at
		default:
			o.begun[r.Instance] = append(o.begun[r.Instance], e.Kv.ModRevision)
		}
	}
}

// record is the record in etcd of the latest restart of a target.
type record struct {
	Instance string
	Done     bool
}

func parseRecord(value []byte) (r record, err error) {
	err = json.Unmarshal(value, &r)
	return r, err
}

// instance returns the instance of a target whose restart was recorded last, which is that of a running command.
func (o *observer) instance(target string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := o.client.Get(ctx, o.prefix+"act/"+shard.Of(target).String()+"/"+target)
	if err != nil || len(found.Kvs) == 0 {
		return ""
	}
	r, _ := parseRecord(found.Kvs[0].Value) // otherwise it is the record of no restart
	return r.Instance
}

// ownerAt returns the engine that had last claimed the shard of a target at a time during the restart of an instance. A claim that
// precedes the first record of that restart was made before it, however late the watch delivered it.
func (o *observer) ownerAt(target, instance string, at time.Time) (engine string) {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	recorded := int64(0)
	if begun := o.begun[instance]; len(begun) > 0 {
		recorded = begun[0]
	}
	for _, c := range o.claims[shard.Of(target)] {
		if c.revision > recorded && c.at.After(at) {
			break
		}
		engine = c.engine
	}
	return engine
}

// hasRecorded reports whether an engine owned the shard of a target when the restart of an instance was recorded as begun.
func (o *observer) hasRecorded(engine, target, instance string) bool {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	for _, at := range o.begun[instance] {
		owner := ""
		for _, c := range o.claims[shard.Of(target)] {
			if c.revision < at {
				owner = c.engine
			}
		}
		if owner == engine {
			return true
		}
	}
	return false
}

// isRecorded reports whether the restart of an instance was recorded as done before a time.
func (o *observer) isRecorded(instance string, before time.Time) bool {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	at, ok := o.done[instance]
	return ok && at.Before(before)
}

// isDivided reports whether all shards belong to members, and their number is members.
func (o *observer) isDivided(members int) bool {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	if len(o.members) != members || len(o.owners) != shard.Count {
		return false
	}
	var names []string
	for name := range o.members {
		names = append(names, name)
	}
	for id, name := range shard.Assign(names) {
		if o.owners[shard.ID(id)] != name {
			return false
		}
	}
	return true
}

// lease returns the lease of a member, or 0 if the engine is not a member.
func (o *observer) lease(engine string) clientv3.LeaseID {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	return o.members[engine]
}

// lastClaim returns when the latest claim was observed.
func (o *observer) lastClaim() (at time.Time) {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	for _, all := range o.claims {
		if last := all[len(all)-1].at; last.After(at) {
			at = last
		}
	}
	return at
}

// counts returns the number of observed changes of keys and claims.
func (o *observer) counts() (changes, claims int) {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	for _, all := range o.claims {
		claims += len(all)
	}
	return o.changes, claims
}
