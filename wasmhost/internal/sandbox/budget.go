package sandbox

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// DefaultTotalMemory is the default limit of the memory of all instances together.
const DefaultTotalMemory = 1 << 30

// instanceOverhead is what an instance costs beside its memory and what its module declares,
// in bytes: the runtime's own structures, and its first stacks.
const instanceOverhead = 64 << 10

// ErrNoMemory ends a call, or is in the error of a start, for which there is no memory
// within the budget.
var ErrNoMemory = errors.New("the instances of all plugins use all of the memory that they may use together")

// budget bounds the memory of the instances of all plugins together. Half of it is shared
// out: a plugin may always use its share, unless others hold it from before a plugin was
// added. The other half belongs to those that need it first. It is safe for concurrent use
// by multiple goroutines.
type budget struct {
	idleMu sync.Mutex // held by the goroutine that closes idle instances of other plugins

	mu        sync.Mutex // guards what follows, and the accounts
	limit     int64
	used      int64
	instances int64
	accounts  map[*account]struct{}
}

// account is what one plugin uses.
type account struct {
	used      int64
	shared    int64 // the part of used that is not of single instances
	instances int64
	waits     bool // it was refused a part of its share since it last got something

	closeOldest func() bool // closes the instance that is idle for longest; false: none is. Called without the lock
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

// mappings is how many mappings of memory one instance needs at most: its image, what it has
// grown by, and the addresses up to its limit, with one to spare for the rest of the process.
const mappings = 4

// maxInstances is how many instances of all plugins the system has mappings for: beyond
// vm.max_map_count Go's own runtime gets no memory, and ends the process.
var maxInstances = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/sys/vm/max_map_count") // on Linux
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		return n / mappings
	}
	return math.MaxInt64
})

// open adds a plugin.
func (b *budget) open(closeOldest func() bool) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &account{closeOldest: closeOldest}
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

// add counts n bytes, which may be negative. The caller holds mu.
func (b *budget) add(a *account, n int64) {
	b.used += n
	a.used += n
}

// refuse notes that a plugin was refused n bytes.
func (b *budget) refuse(a *account, n int64) {
	if a.used+n <= b.share() {
		a.waits = true
	}
}

// reserve counts n more bytes for a plugin, and returns false if there are not as many left. It
// calls releaseSlot before it closes instances of other plugins, which takes long.
func (b *budget) reserve(a *account, n int64, releaseSlot func()) bool {
	if b.tryReserve(a, n, false) {
		return true
	}
	releaseSlot()
	b.reclaim(a, n)
	return b.tryReserve(a, n, false)
}

// reserveShared is reserve for what is not of a single instance.
func (b *budget) reserveShared(a *account, n int64) bool {
	ok := b.reserve(a, n, func() {})
	if ok {
		b.use(a, 0, n)
	}
	return ok
}

// reserveInstance is reserve for an instance. The first one of a plugin may exceed the limit,
// so that each plugin can make attempts.
func (b *budget) reserveInstance(a *account, n int64) bool {
	if b.tryReserve(a, n, true) {
		return true
	}
	b.reclaim(a, n)
	return b.tryReserve(a, n, true)
}

func (b *budget) tryReserve(a *account, n int64, instance bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := instance && a.instances == 0
	if tooMany := instance && b.instances >= maxInstances(); !first && (tooMany || n > b.left(a)) {
		b.refuse(a, n)
		return false
	}
	a.waits = false
	b.add(a, n)
	if instance {
		a.instances++
		b.instances++
	}
	return true
}

// use counts n bytes that a plugin has in any case, so that they may exceed the limit, and says that as many bytes
// as shared are not of single instances. Negative numbers undo that.
func (b *budget) use(a *account, n, shared int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(a, n)
	a.shared += shared
}

// isScarce reports whether more than half of the memory is used.
func (b *budget) isScarce() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used > b.limit/2
}

// releaseInstance returns what an instance has used.
func (b *budget) releaseInstance(a *account, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(a, -n)
	a.instances--
	b.instances--
	if b.used <= b.limit/2 { // all can have their shares
		for other := range b.accounts {
			other.waits = false
		}
	}
}

// usedBy returns how many bytes a plugin uses.
func (b *budget) usedBy(a *account) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.used
}

// wholeInstances is for how many instances there should be room that do not wait, and so need more
// than others.
const wholeInstances = 8

// instanceSize returns how many bytes the next instance of a plugin will use: as many as one does on
// average, or n if that is more.
func (a *account) instanceSize(n int64) int64 {
	return max((a.used-a.shared)/max(a.instances, 1), n)
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
	room := left / a.instanceSize(n)
	if average := max((a.used-a.shared)/a.instances, 1); average < n { // most of them wait
		whole := min(left, wholeInstances*n)
		room = whole/n + (left-whole)/average
	}
	if room = min(room, max(maxInstances()-b.instances, 0)); room == 0 {
		b.refuse(a, n)
	}
	return int(room)
}

// owes reports whether a plugin uses more than its share while another one waits for its
// own: then it closes instances instead of keeping them for later.
func (b *budget) owes(a *account) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.used <= b.share() {
		return false
	}
	for other := range b.accounts {
		if other.waits {
			return true
		}
	}
	return false
}

// reclaim closes idle instances of the plugins that use more than their share, one after another,
// until a can have n more bytes that belong to its own: plugins that make no attempts would keep
// them.
func (b *budget) reclaim(a *account, n int64) {
	b.idleMu.Lock()
	defer b.idleMu.Unlock()
	for _, other := range b.others(a) {
		for b.mustYield(other, a, n) && other.closeOldest() {
		}
	}
}

// reclaimInstance is reclaim for an instance of n bytes or more.
func (b *budget) reclaimInstance(a *account, n int64) {
	b.mu.Lock()
	n = a.instanceSize(n)
	b.mu.Unlock()
	b.reclaim(a, n)
}

// others returns all plugins but one.
func (b *budget) others(a *account) (all []*account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.accounts {
		if other != a {
			all = append(all, other)
		}
	}
	return all
}

// mustYield reports whether a plugin uses more than its share while a cannot have n bytes of its own.
func (b *budget) mustYield(other, a *account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	share := b.share()
	return other.used > share && a.used+n <= share && b.left(a) < n
}
