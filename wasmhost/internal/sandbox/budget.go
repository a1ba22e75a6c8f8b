package sandbox

import (
	"errors"
	"sync"
)

// DefaultTotalMemory is the default limit of the memory of all instances together.
const DefaultTotalMemory = 1 << 30

// instanceOverhead is what an instance costs beside its memory, in bytes: the runtime's
// own structures, and its first stacks.
const instanceOverhead = 64 << 10

// ErrNoMemory ends a call, or is in the error of a start, for which there is no memory
// within the budget.
var ErrNoMemory = errors.New("the instances of all plugins use all of the memory that they may use together")

// budget bounds the memory of the instances of all plugins together. Half of it is shared
// out: a plugin may always use its share, unless others hold it from before a plugin was
// added. The other half belongs to those that need it first. It is safe for concurrent use
// by multiple goroutines.
type budget struct {
	mu       sync.Mutex // guards what follows, and the accounts
	limit    int64
	used     int64
	accounts map[*account]struct{}
	wanted   bool // a plugin could not have its share
}

// account is what the instances of one plugin use.
type account struct {
	used      int64
	instances int64
}

// totalMemory is the budget of all plugins.
var totalMemory = budget{limit: DefaultTotalMemory}

// SetTotalMemory sets the limit of the memory of all instances together, in bytes. Lowering
// it takes no memory from those that run.
func SetTotalMemory(limit int64) {
	totalMemory.mu.Lock()
	defer totalMemory.mu.Unlock()
	totalMemory.limit = limit
}

// open adds a plugin.
func (b *budget) open() *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &account{}
	if b.accounts == nil {
		b.accounts = make(map[*account]struct{})
	}
	b.accounts[a] = struct{}{}
	return a
}

// close removes a plugin, whose instances have been closed.
func (b *budget) close(a *account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.accounts, a)
}

func (b *budget) share() int64 { return b.limit / 2 / int64(max(len(b.accounts), 1)) }

// left returns how many bytes more a plugin may use.
func (b *budget) left(a *account) int64 {
	share, others := b.share(), int64(0)
	for other := range b.accounts {
		if other != a {
			others += max(other.used, share)
		}
	}
	return min(b.limit-b.used, max(share, b.limit-others)-a.used)
}

// take counts n more bytes for a plugin, and returns false if there are not as many left.
func (b *budget) take(a *account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left(a) {
		b.wanted = b.wanted || a.used+n <= b.share()
		return false
	}
	b.used += n
	a.used += n
	return true
}

// takeInstance is take for an instance. The first one of a plugin may exceed the limit, so
// that each plugin can make attempts.
func (b *budget) takeInstance(a *account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.instances > 0 && n > b.left(a) {
		b.wanted = b.wanted || a.used+n <= b.share()
		return false
	}
	b.used += n
	a.used += n
	a.instances++
	return true
}

// release returns what an instance has used.
func (b *budget) release(a *account, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	a.used -= n
	a.instances--
	if b.wanted && b.used <= b.limit/2 {
		b.wanted = false
	}
}

// usedBy returns how many bytes a plugin uses.
func (b *budget) usedBy(a *account) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.used
}

// room returns how many more instances a plugin may have, if they use as much as those that
// it has, or n bytes if that is more.
func (b *budget) room(a *account, n int64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := max(b.left(a), 0)
	if a.instances == 0 {
		return max(int(left/n), 1)
	}
	return int(left / max(a.used/a.instances, n))
}

// owes reports whether a plugin uses more than its share while another one waits for its
// own: then it closes instances instead of keeping them for later.
func (b *budget) owes(a *account) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wanted && a.used > b.share()
}
