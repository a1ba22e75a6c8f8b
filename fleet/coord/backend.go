package coord

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Backend is the store that the engines of a fleet share: a small linearizable map with leases. Its methods are safe for
// concurrent use by multiple goroutines, and return when ctx is done. After an error other than those below, a change
// may have been made nevertheless. Package tests/coordtest has tests that each Backend must pass.
type Backend interface {
	// Grant creates a lease that expires ttl after it was granted or last kept alive, never earlier. On expiry its entries
	// are deleted in key order.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepAlive renews a lease. The error is ErrLeaseEnded if it has expired or was revoked.
	KeepAlive(ctx context.Context, l Lease) error
	// Revoke ends a lease immediately.
	Revoke(ctx context.Context, l Lease) error

	// Commit commits transactions, each on its own, in one request of at most MaxTransactions. It returns for each whether
	// its conditions were fulfilled. No two transactions may change the same key.
	Commit(ctx context.Context, all ...Transaction) ([]bool, error)
	// Get returns the entry of a key. Its Created is 0 if the key does not exist.
	Get(ctx context.Context, key string) (Entry, error)
	// Range returns the entries whose keys begin with a prefix, sorted by key, and the revision of this snapshot.
	Range(ctx context.Context, prefix string) ([]Entry, Revision, error)
	// RangeAll returns the entries of at most MaxTransactions prefixes, each as Range does, in one request.
	RangeAll(ctx context.Context, prefixes ...string) ([][]Entry, error)
	// Watch returns the changes of entries after a revision, in order, in batches. It ends with an error, which is
	// ErrCompacted if the store no longer has all changes since that revision.
	Watch(ctx context.Context, prefix string, after Revision) iter.Seq2[[]Event, error]
}

// The limits of one request: MaxTransactions bounds the transactions of one Backend.Commit and the prefixes of one
// Backend.RangeAll. MaxChanges bounds the changes of each transaction if there are MaxTransactions; with fewer
// transactions there may be more changes. Etcd allows 128 operations, and counts the transactions plus the changes of
// the longest.
const (
	MaxTransactions = 100
	MaxChanges      = 25
)

// CheckCommit returns an error if transactions exceed the limits of one request.
func CheckCommit(all []Transaction) error {
	if len(all) > MaxTransactions {
		return fmt.Errorf("%d transactions in one request, at most %d are allowed", len(all), MaxTransactions)
	}
	for _, t := range all {
		if n := len(all) + len(t.Then); n > MaxTransactions+MaxChanges {
			return fmt.Errorf("%d transactions in one request, one of them with %d changes, at most %d are allowed together", len(all), len(t.Then), MaxTransactions+MaxChanges)
		}
	}
	return nil
}

// MaxRequest bounds the total size of the values of one Backend.Commit, in bytes: etcd allows requests of 1.5 MiB.
const MaxRequest = 1 << 20

// The errors of a Backend that a caller must recognize.
var (
	ErrLeaseEnded = errors.New("the lease has ended")
	ErrCompacted  = errors.New("the revision to watch from was compacted")

	ErrUnreachable = errors.New("the store does not answer") // may be temporary: the store, or its leader, is unavailable
)

// Lease identifies a lease. Entries put with a lease are deleted when it ends. 0 means no lease.
type Lease int64

// Revision counts the changes of a Backend. Each change has a higher revision than all earlier ones.
type Revision int64

// Transaction is a change that is made if all its conditions are fulfilled.
type Transaction struct {
	If   []Condition
	Then []Change
}

// Condition is a condition on one key.
type Condition struct {
	Key      string
	Created  Revision // the entry must exist and have been created at this revision; 0: it must not exist, unless Modified is set
	Modified Revision // instead of Created: the entry must exist, last changed at this revision; 0: any
}

// Change puts or deletes an entry.
type Change struct {
	Key    string
	Value  []byte
	Lease  Lease
	Delete bool
}

// Entry is a key with its value.
type Entry struct {
	Key      string
	Value    []byte   // read-only
	Created  Revision // revision at which the key was created; a new value does not change it
	Modified Revision // revision of the latest change, which may be the deletion of the entry
}

// Event is a change of an entry.
type Event struct {
	Entry
	Deleted bool // the entry was deleted, and has neither Value nor Created
}
