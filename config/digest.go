package config

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/probe"
)

// Digest is what a later Parse needs to know of a configuration in order to leave out
// what has not changed since: names, and fingerprints of texts and values. It holds no
// probes.
type Digest struct {
	Targets int // how many there are
	Probes  int

	locals map[fingerprint]bool  // those that had no error
	loops  map[fingerprint]*loop // targets with for_each, by their text without for_each
	others []digested            // all other targets
}

// loop is a target block with for_each.
type loop struct {
	each     *fingerprint // of the argument for_each; nil if it has none
	elements []digested   // sorted by name
	probes   int
}

// digested is a target with the names of its probes.
type digested struct {
	name   string
	hash   uint64 // of the element of for_each
	probes []probeName
}

type probeName struct {
	kind probe.Kind
	name string
}

func (d *digested) compare(name string) int { return strings.Compare(d.name, name) }

// Removed is what a previous configuration had, and a later one has not.
type Removed struct {
	Probes  []probe.ID
	Targets []string
}

// digester compares a configuration with a previous one while it is parsed, and makes its
// digest.
type digester struct {
	loader   *loader
	previous *Digest // empty without one
	next     *Digest
	prints   *fingerprints
	blocks   map[*tree.Block]*digestedBlock // the target blocks with for_each
	kept     map[string][]*digestedBlock    // those that have not changed at all, by label
	demanded map[string]bool                // the locals that must be evaluated

	lifecycle bool // the target that is being decoded says how it is started

	probes []probeName // of the target that is being decoded
	spare  []probeName // of the target before it: most targets have the same
	gone   []digested  // elements that are not the same any more
}

// digestedBlock is a target block with for_each.
type digestedBlock struct {
	block *tree.Block
	key   fingerprint
	ok    bool  // its targets depend on nothing but their elements, its text and what that refers to
	was   *loop // the same text in the previous configuration, or nil
	now   *loop
	seen  int  // elements of was that were compared
	since int  // number of reports when the block was begun
	own   bool // it says how its targets are started, so that they are decoded each time
}

// newDigester compares the blocks of a configuration whose variables are evaluated.
func newDigester(l *loader) *digester {
	d := &digester{
		loader: l, previous: l.options.Previous, prints: newFingerprints(l),
		next:     &Digest{locals: map[fingerprint]bool{}, loops: map[fingerprint]*loop{}},
		blocks:   map[*tree.Block]*digestedBlock{},
		kept:     map[string][]*digestedBlock{},
		demanded: map[string]bool{},
	}
	if d.previous == nil {
		d.previous = &Digest{}
	}
	d.compareBlocks()
	for kind, blocks := range l.blocks {
		for _, b := range blocks {
			if kind != "locals" && kind != "variable" && !d.isKept(b) {
				d.demand(b)
			}
		}
	}
	for name := range d.prints.locals {
		if p, ok := d.prints.local(name); !ok || !d.previous.locals[p] {
			d.demanded[name] = true
		}
		if p, ok := d.prints.local(name); ok {
			d.next.locals[p] = true
		}
	}
	return d
}

// compareBlocks finds the target blocks that were in the previous configuration.
func (d *digester) compareBlocks() {
	byKey := map[fingerprint]*digestedBlock{}
	for _, b := range d.loader.blocks["target"] {
		text := b.Body.Text()
		if text == nil || text.Attributes["for_each"] == nil {
			continue
		}
		n := &digestedBlock{block: b, now: &loop{}}
		n.key, n.ok = d.prints.target(b)
		if each, ok := d.prints.argument(text.Attributes["for_each"]); ok {
			n.now.each = &each
		}
		if twin := byKey[n.key]; twin != nil {
			n.ok, twin.ok = false, false
		}
		byKey[n.key], d.blocks[b] = n, n
	}
	for _, n := range d.blocks {
		if !n.ok {
			continue
		}
		n.was = d.previous.loops[n.key]
		if n.was != nil && n.was.each != nil && n.now.each != nil && *n.was.each == *n.now.each {
			label := n.block.Label(0)
			n.now, d.kept[label] = n.was, append(d.kept[label], n)
		}
	}
}

// isKept reports whether all targets of a block are as in the previous configuration.
func (d *digester) isKept(b *tree.Block) bool {
	n := d.blocks[b]
	return n != nil && n.now == n.was
}

// demand asks for the locals that a block refers to.
func (d *digester) demand(b *tree.Block) {
	text := b.Body.Text()
	if text == nil { // in the JSON syntax
		for name := range d.prints.locals {
			d.demanded[name] = true
		}
		return
	}
	refs := referencesOf(text)
	for name := range d.prints.locals {
		d.demanded[name] = d.demanded[name] || refs.locals[name] || refs.whole
	}
}

// keep keeps the targets of a block, and reports whether it can.
func (d *digester) keep(b *tree.Block) bool {
	if !d.isKept(b) {
		return false
	}
	n := d.blocks[b]
	d.next.loops[n.key] = n.now
	d.count(len(n.now.elements), n.now.probes)
	return true
}

// keeper returns the block that keeps the target of a name, or nil.
func (d *digester) keeper(name string) *tree.Block {
	at := strings.LastIndex(name, `["`)
	if at < 0 {
		return nil
	}
	for _, n := range d.kept[name[:at]] {
		if _, found := find(n.now.elements, name); found {
			return n.block
		}
	}
	return nil
}

func find(sorted []digested, name string) (at int, found bool) {
	return slices.BinarySearchFunc(sorted, name, func(e digested, name string) int { return e.compare(name) })
}

// begin begins a block with for_each whose elements are compared one by one.
func (d *digester) begin(b *tree.Block) *digestedBlock {
	n := d.blocks[b]
	if n == nil { // in the JSON syntax
		n = &digestedBlock{block: b, now: &loop{}}
	}
	n.since, d.lifecycle = d.loader.reports, false
	return n
}

// same keeps an element that has not changed, and reports whether it has not.
func (d *digester) same(n *digestedBlock, name string, hash uint64) bool {
	if n.was == nil || hash == 0 {
		return false
	}
	for ; n.seen < len(n.was.elements) && n.was.elements[n.seen].compare(name) < 0; n.seen++ {
		d.gone = append(d.gone, n.was.elements[n.seen])
	}
	if n.seen == len(n.was.elements) || n.was.elements[n.seen].name != name || n.was.elements[n.seen].hash != hash {
		return false
	}
	e := n.was.elements[n.seen]
	n.seen++
	n.now.elements = append(n.now.elements, e)
	n.now.probes += len(e.probes)
	d.count(1, len(e.probes))
	return true
}

// decoded notes an element that was decoded, or with nil another target.
func (d *digester) decoded(n *digestedBlock, name string, hash uint64) {
	if !slices.Equal(d.probes, d.spare) {
		d.spare = slices.Clone(d.probes)
	}
	if d.lifecycle && n != nil {
		n.own = true
	}
	d.lifecycle = false
	e := digested{name, hash, d.spare}
	d.count(1, len(e.probes))
	d.probes = d.probes[:0]
	if n == nil {
		d.next.others = append(d.next.others, e)
		return
	}
	n.now.elements = append(n.now.elements, e)
	n.now.probes += len(e.probes)
}

// end ends a block with for_each. Its next Parse decodes all its elements if they had
// warnings, or a driver.
func (d *digester) end(n *digestedBlock) {
	if n.was != nil {
		d.gone = append(d.gone, n.was.elements[n.seen:]...)
	}
	if !n.ok || n.own || d.loader.reports != n.since || len(n.now.elements) == 0 {
		d.next.others = append(d.next.others, n.now.elements...)
		return
	}
	slices.SortFunc(n.now.elements, func(a, b digested) int { return a.compare(b.name) })
	d.next.loops[n.key] = n.now
}

func (d *digester) count(targets, probes int) {
	d.next.Targets += targets
	d.next.Probes += probes
}

// finish sets the digest of a configuration, and what it has not any more.
func (d *digester) finish(c *Config) {
	c.digest = d.next
	compared := map[*loop]bool{}
	for _, n := range d.blocks {
		compared[n.was] = true
	}
	for _, l := range d.previous.loops {
		if !compared[l] {
			d.gone = append(d.gone, l.elements...)
		}
	}
	for _, e := range append(d.gone, d.previous.others...) {
		if _, still := c.Targets[e.name]; !still {
			c.Removed.Targets = append(c.Removed.Targets, e.name)
		}
		for _, p := range e.probes {
			id := probe.ID{Target: e.name, Kind: p.kind, Name: p.name}
			if _, still := c.Set[id]; !still {
				c.Removed.Probes = append(c.Removed.Probes, id)
			}
		}
	}
}

// hashElement returns the hash of an element of for_each, or 0 if it has none.
func hashElement(e element) uint64 {
	var h maphash.Hash
	h.SetSeed(elementSeed)
	if e.value.ContainsMarked() || !writeValue(&h, e.keyValue) || !writeValue(&h, e.value) {
		return 0
	}
	return h.Sum64()
}

// elementSeed is that of the hashes of elements, which are compared in one process only.
var elementSeed = maphash.MakeSeed()
