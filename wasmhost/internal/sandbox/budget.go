package sandbox

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// DefaultTotalMemory is the default memory limit for all instances together, in bytes.
const DefaultTotalMemory = 1 << 30

// instanceOverhead is the overhead of an instance in bytes, in addition to its memory and
// module.Overhead: the runtime's own structures and the first stacks.
const instanceOverhead = 64 << 10

// ErrNoMemory is the error of a call, or is wrapped by the error of a start, for which the budget
// has no memory.
var ErrNoMemory = errors.New("the memory limit for the instances of all plugins is reached")

// budget bounds the memory of the instances of all plugins together. Half of the limit is divided
// into equal shares: a plugin may always use its share, unless others still use that memory since
// before a plugin was added. The other half is used on demand. It is safe for concurrent use by
// multiple goroutines.
type budget struct {
	idleMu sync.Mutex // held by the goroutine that closes idle instances of other plugins

	mu        sync.Mutex // guards the fields below, and the accounts
	limit     int64
	used      int64
	instances int64
	accounts  map[*account]struct{}
}

// account is the memory use of one plugin.
type account struct {
	used      int64
	shared    int64 // the part of used that belongs to no single instance
	instances int64
	waits     bool // a request within its share was refused, and none was granted since

	closeOldest func() bool // closes the instance that is idle for longest; false if none is. Called without the lock
}

// totalMemory is the budget for all plugins.
var totalMemory = budget{limit: DefaultTotalMemory}

// SetTotalMemory sets the memory limit for all instances together, in bytes. Lowering it does not
// affect running instances.
func SetTotalMemory(limit int64) {
	totalMemory.mu.Lock()
	defer totalMemory.mu.Unlock()
	totalMemory.limit = limit
}

// mappings is the maximum number of memory mappings of one instance: its image, the memory that it
// has grown by, and the addresses up to its limit, plus one for the rest of the process.
const mappings = 4

// maxInstances returns the number of instances, of all plugins, for which the system allows memory
// mappings: beyond vm.max_map_count Go's runtime could not allocate memory either, and would crash
// the process.
var maxInstances = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/sys/vm/max_map_count") // on Linux
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		return n / mappings
	}
	return math.MaxInt64
})

// open adds a plugin and returns its account.
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

// close removes a plugin. Its instances must have been closed.
func (b *budget) close(a *account) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.accounts, a)
}

func (b *budget) share() int64 { return b.limit / 2 / int64(max(len(b.accounts), 1)) }

// left returns the number of bytes that a plugin may use in addition.
func (b *budget) left(a *account) int64 {
	share, others := b.share(), int64(0)
	for other := range b.accounts {
		if other != a {
			others += max(other.used, share)
		}
	}
	return min(b.limit-b.used, max(share, b.limit-others)-a.used)
}

// add adds n bytes, which may be negative, to the used memory. The caller holds mu.
func (b *budget) add(a *account, n int64) {
	b.used += n
	a.used += n
}

// refuse records that a request for n bytes was refused.
func (b *budget) refuse(a *account, n int64) {
	if a.used+n <= b.share() {
		a.waits = true
	}
}

// reserve counts n more bytes for a plugin. It returns false if fewer are left. Before it closes
// instances of other plugins, which may take long, it calls releaseSlot.
func (b *budget) reserve(a *account, n int64, releaseSlot func()) bool {
	if b.tryReserve(a, n, false) {
		return true
	}
	releaseSlot()
	b.reclaim(a, n)
	return b.tryReserve(a, n, false)
}

// reserveShared is like reserve, for memory that belongs to no single instance.
func (b *budget) reserveShared(a *account, n int64) bool {
	ok := b.reserve(a, n, func() {})
	if ok {
		b.use(a, 0, n)
	}
	return ok
}

// reserveInstance is like reserve, for an instance. The first instance of a plugin may exceed the
// limit, so that each plugin can make attempts.
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

// use counts n bytes that a plugin already has, so that the limit may be exceeded, and adds shared to the bytes
// that belong to no single instance. Both numbers may be negative.
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

// releaseInstance returns the n bytes of an instance.
func (b *budget) releaseInstance(a *account, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(a, -n)
	a.instances--
	b.instances--
	if b.used <= b.limit/2 { // every plugin can have its share
		for other := range b.accounts {
			other.waits = false
		}
	}
}

// usedBy returns the number of bytes that a plugin uses.
func (b *budget) usedBy(a *account) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.used
}

// wholeInstances is the number of computing instances for which room keeps memory: they need more
// than waiting ones.
const wholeInstances = 8

// instanceSize estimates the size in bytes of a plugin's next instance: the average of its
// instances, but at least n.
func (a *account) instanceSize(n int64) int64 {
	return max((a.used-a.shared)/max(a.instances, 1), n)
}

// room returns the number of instances that a plugin may have in addition, if each uses as much as
// its present ones on average, but at least n bytes.
func (b *budget) room(a *account, n int64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := max(b.left(a), 0)
	if a.instances == 0 {
		return max(int(left/n), 1)
	}
	room := left / a.instanceSize(n)
	if average := max((a.used-a.shared)/a.instances, 1); average < n { // most instances wait
		whole := min(left, wholeInstances*n)
		room = whole/n + (left-whole)/average
	}
	if room = min(room, max(maxInstances()-b.instances, 0)); room == 0 {
		b.refuse(a, n)
	}
	return int(room)
}

// owes reports whether a plugin uses more than its share while another plugin waits for memory
// within its share. The plugin then closes instances instead of keeping them.
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
// until a can reserve n more bytes within its own share. Otherwise plugins that make no attempts
// would keep the memory.
func (b *budget) reclaim(a *account, n int64) {
	b.idleMu.Lock()
	defer b.idleMu.Unlock()
	for _, other := range b.others(a) {
		for b.mustYield(other, a, n) && other.closeOldest() {
		}
	}
}

// reclaimInstance is like reclaim, for an instance of at least n bytes.
func (b *budget) reclaimInstance(a *account, n int64) {
	b.mu.Lock()
	n = a.instanceSize(n)
	b.mu.Unlock()
	b.reclaim(a, n)
}

// others returns the accounts of all other plugins.
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

// mustYield reports whether other uses more than its share while a cannot reserve n bytes within its
// share.
func (b *budget) mustYield(other, a *account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	share := b.share()
	return other.used > share && a.used+n <= share && b.left(a) < n
}
