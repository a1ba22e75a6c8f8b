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
	labels map[string]string
	ports  map[string]uint16
}

type probeName struct {
	kind probe.Kind
	name string
}

func compareName(d digested, name string) int { return strings.Compare(d.name, name) }

// Removed is what a previous configuration had, and a later one does not have.
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
	blocks   map[*tree.Block]*comparedBlock // the target blocks with for_each
	equal    map[string][]*comparedBlock    // those that have not changed at all, by label
	demanded map[string]bool                // the locals that must be evaluated
	dropped  []digested                     // previous elements that are not equal to the present ones

	probes        []probeName // of the target that is being decoded
	labels        map[string]string
	ports         map[string]uint16
	decodedAlways bool        // that target is decoded each time: it says how it is started or damped, or on what it depends
	spare         []probeName // of the target before it: most targets have the same
}

// comparedBlock is a target block with for_each, and what the previous configuration had
// with the same text.
type comparedBlock struct {
	block         *tree.Block
	key           fingerprint
	pure          bool  // its targets depend on nothing but their elements, its text and what that refers to
	previous      *loop // nil if there was none
	next          *loop // previous itself if nothing has changed
	compared      int   // elements of previous that were compared
	reports       int   // of the loader, before the block was decoded
	decodedAlways bool  // its targets are decoded each time: it says how they are started or damped, or on what they depend
}

// newDigester compares the blocks of a configuration whose variables are evaluated.
func newDigester(l *loader) *digester {
	d := &digester{
		loader: l, previous: l.options.Previous, prints: newFingerprints(l),
		next:     &Digest{locals: map[fingerprint]bool{}, loops: map[fingerprint]*loop{}},
		blocks:   map[*tree.Block]*comparedBlock{},
		equal:    map[string][]*comparedBlock{},
		demanded: map[string]bool{},
	}
	if d.previous == nil {
		d.previous = &Digest{}
	}
	d.compareBlocks()
	for kind, blocks := range l.blocks {
		for _, b := range blocks {
			if kind != "locals" && kind != "variable" && !d.isEqual(b) {
				d.demand(b)
			}
		}
	}
	for name := range d.prints.locals {
		p, ok := d.prints.local(name)
		if ok {
			d.next.locals[p] = true
		}
		d.demanded[name] = d.demanded[name] || !ok || !d.previous.locals[p]
	}
	return d
}

// compareBlocks finds the target blocks that were in the previous configuration.
func (d *digester) compareBlocks() {
	byKey := map[fingerprint]*comparedBlock{}
	for _, b := range d.loader.blocks["target"] {
		text := b.Body.Text()
		if text == nil || text.Attributes["for_each"] == nil {
			continue
		}
		n := &comparedBlock{block: b, next: &loop{}}
		n.key, n.pure = d.prints.target(b)
		if each, ok := d.prints.argument(text.Attributes["for_each"]); ok {
			n.next.each = &each
		}
		if twin := byKey[n.key]; twin != nil {
			n.pure, twin.pure = false, false
		}
		byKey[n.key], d.blocks[b] = n, n
	}
	for _, n := range d.blocks {
		if !n.pure {
			continue
		}
		n.previous = d.previous.loops[n.key]
		if n.previous != nil && n.previous.each != nil && n.next.each != nil && *n.previous.each == *n.next.each {
			label := n.block.Label(0)
			if text := n.block.Body.Text(); text.Attributes["name"] != nil {
				label = "" // its targets can have any names
			}
			n.next, d.equal[label] = n.previous, append(d.equal[label], n)
		}
	}
}

// isEqual reports whether all targets of a block are as in the previous configuration.
func (d *digester) isEqual(b *tree.Block) bool {
	n := d.blocks[b]
	return n != nil && n.next == n.previous
}

// demand asks for the locals that a block refers to.
func (d *digester) demand(b *tree.Block) {
	text := b.Body.Text()
	refs := &nodeReferences{whole: true} // in the JSON syntax
	if text != nil {
		refs = referencesOf(text)
	}
	for name := range d.prints.locals {
		d.demanded[name] = d.demanded[name] || refs.locals[name] || refs.whole
	}
}

// reuse takes over the targets of a block that has not changed, and reports whether it
// has not.
func (d *digester) reuse(b *tree.Block) bool {
	if !d.isEqual(b) {
		return false
	}
	n := d.blocks[b]
	d.next.loops[n.key] = n.next
	d.count(len(n.next.elements), n.next.probes)
	return true
}

// reusedOrigin returns the origin of a target that is reused, or nil.
func (d *digester) reusedOrigin(name string) *origin {
	label := ""
	if at := strings.LastIndex(name, `["`); at >= 0 {
		label = name[:at]
	}
	for _, n := range slices.Concat(d.equal[""], d.equal[label]) {
		if _, found := slices.BinarySearchFunc(n.next.elements, name, compareName); found {
			return &origin{header: n.block.Header, inLoop: true}
		}
	}
	return nil
}

// startBlock starts a block with for_each whose elements are compared one by one.
func (d *digester) startBlock(b *tree.Block) *comparedBlock {
	n := d.blocks[b]
	if n == nil { // in the JSON syntax
		n = &comparedBlock{block: b, next: &loop{}}
	}
	n.reports = d.loader.reports
	return n
}

// reuseElement takes over the target of an element that has not changed, and reports
// whether it has not. It finds an element only if the elements come in the order of their
// targets' names. Some do not, since HCL sorts their keys: these are decoded.
func (d *digester) reuseElement(n *comparedBlock, name string, hash uint64) bool {
	if n.previous == nil || hash == 0 {
		return false
	}
	rest := n.previous.elements[n.compared:]
	for len(rest) > 0 && rest[0].name < name {
		d.dropped = append(d.dropped, rest[0])
		rest = rest[1:]
	}
	n.compared = len(n.previous.elements) - len(rest)
	if len(rest) == 0 || rest[0].name != name || rest[0].hash != hash {
		return false
	}
	n.compared++
	d.addElement(n, rest[0])
	return true
}

// startTarget starts a target that is decoded.
func (d *digester) startTarget() {
	d.probes, d.labels, d.ports, d.decodedAlways = d.probes[:0], nil, nil, false
}

// addDecoded adds a target that was decoded; block is nil if it has no for_each.
func (d *digester) addDecoded(n *comparedBlock, name string, hash uint64) {
	if !slices.Equal(d.probes, d.spare) {
		d.spare = slices.Clone(d.probes)
	}
	e := digested{name, hash, d.spare, d.labels, d.ports}
	if n != nil {
		n.decodedAlways = n.decodedAlways || d.decodedAlways
		d.addElement(n, e)
		return
	}
	d.count(1, len(e.probes))
	d.next.others = append(d.next.others, e)
}

func (d *digester) addElement(n *comparedBlock, e digested) {
	d.count(1, len(e.probes))
	n.next.elements = append(n.next.elements, e)
	n.next.probes += len(e.probes)
}

// endBlock ends a block with for_each. Its next Parse decodes all its elements if they had
// warnings, or a driver.
func (d *digester) endBlock(n *comparedBlock) {
	if n.previous != nil {
		d.dropped = append(d.dropped, n.previous.elements[n.compared:]...)
	}
	if !n.pure || n.decodedAlways || d.loader.reports != n.reports || len(n.next.elements) == 0 {
		d.next.others = append(d.next.others, n.next.elements...)
		return
	}
	slices.SortFunc(n.next.elements, func(a, b digested) int { return compareName(a, b.name) })
	d.next.loops[n.key] = n.next
}

func (d *digester) count(targets, probes int) {
	d.next.Targets += targets
	d.next.Probes += probes
}

// finish sets the digest of a configuration, and what was removed from the previous one.
func (d *digester) finish(c *Config) {
	c.digest = d.next
	compared := map[*loop]bool{}
	for _, n := range d.blocks {
		compared[n.previous] = true
	}
	for _, l := range d.previous.loops {
		if !compared[l] {
			d.dropped = append(d.dropped, l.elements...)
		}
	}
	for _, e := range append(d.dropped, d.previous.others...) {
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
	if containsMarked(e.value) || !writeValue(&h, e.keyValue) || !writeValue(&h, e.value) {
		return 0
	}
	return h.Sum64()
}

// elementSeed is that of the hashes of elements, which are compared in one process only.
var elementSeed = maphash.MakeSeed()
