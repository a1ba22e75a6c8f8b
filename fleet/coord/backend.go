package coord

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Backend is what the engines of a fleet share: a small map that is linearizable, with leases. Its
// methods are safe for concurrent use by multiple goroutines, and return when ctx is done. After an
// error other than those below, a change may have been made all the same. Package tests/coordtest has tests
// that each Backend must pass.
type Backend interface {
	// Grant makes a lease, which ends a ttl after it was granted or last kept alive, not before. Then its entries are
	// deleted, in the order of their keys.
	Grant(ctx context.Context, ttl time.Duration) (Lease, error)
	// KeepAlive renews a lease. The error is ErrLeaseEnded if it has ended.
	KeepAlive(ctx context.Context, l Lease) error
	// Revoke ends a lease at once.
	Revoke(ctx context.Context, l Lease) error

	// Commit makes transactions, each on its own, in one request of at most MaxTransactions, and returns
	// which of them had their conditions fulfilled. No two of them change the same key.
	Commit(ctx context.Context, all ...Transaction) ([]bool, error)
	// Get returns the entry of a key, one without Created if there is none.
	Get(ctx context.Context, key string) (Entry, error)
	// Range returns the entries whose keys begin with a prefix, in the order of their keys, and the
	// revision that shows them so.
	Range(ctx context.Context, prefix string) ([]Entry, Revision, error)
	// RangeAll returns the entries of each of at most MaxTransactions prefixes, as Range does, in one request.
	RangeAll(ctx context.Context, prefixes ...string) ([][]Entry, error)
	// Watch returns the changes of entries after a revision, in their order, in batches. It ends with an
	// error, which is ErrCompacted if the changes are no longer known.
	Watch(ctx context.Context, prefix string, after Revision) iter.Seq2[[]Event, error]
}

// The bounds of one request: of the transactions of one Backend.Commit and the prefixes of one
// Backend.RangeAll, and of the changes of each of so many transactions. Fewer transactions may have more
// changes: etcd allows 128 operations, of which it counts the transactions and the changes of the longest.
const (
	MaxTransactions = 100
	MaxChanges      = 25
)

// CheckCommit returns an error if a Backend does not make transactions in one request.
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

// MaxRequest bounds the values of one Backend.Commit together, in bytes: etcd allows requests of 1.5 MiB.
const MaxRequest = 1 << 20

// The errors of a Backend that a caller has to recognize.
var (
	ErrLeaseEnded = errors.New("the lease has ended")
	ErrCompacted  = errors.New("the revision is too old to be watched from")

	ErrUnreachable = errors.New("the store does not answer") // it may pass: the store, or a leader of it, is away
)

// Lease names a lease. Entries that were put with one are deleted when it ends. 0 is none.
type Lease int64

// Revision counts the changes of a Backend. Each change has a higher one than those before it.
type Revision int64

// Transaction is a change that is made if all its conditions are fulfilled.
type Transaction struct {
	If   []Condition
	Then []Change
}

// Condition is about one key.
type Condition struct {
	Key      string
	Created  Revision // of the entry that must exist; 0: there must be none, unless Modified is set
	Modified Revision // of the entry that must exist, which was not changed since, instead of Created; 0: any
}

// Change puts an entry, or deletes it.
type Change struct {
	Key    string
	Value  []byte
	Lease  Lease
	Delete bool
}

// Entry is a key with its value.
type Entry struct {
	Key      string
	Value    []byte   // do not change it
	Created  Revision // since which the key exists; another value does not change it
	Modified Revision // of the latest change, also of one that has deleted the entry
}

// Event is a change of an entry.
type Event struct {
	Entry
	Deleted bool // then there is neither Value nor Created
}
