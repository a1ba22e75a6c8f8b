// Package alternative finds the texts that the value of an expression can become, while something in it is unknown.
//
// HCL evaluates env("TOKEN", "x") to an unknown value, and forgets "x". An expression of a Tracker has the same value,
// with a Mark that says where such a text is. Marks go where values go: through references, loops, templates and
// functions. A text that is a mere part of an unknown value, such as "Bearer " in "Bearer ${env("TOKEN")}", is none.
//
//	alternative.go values: Mark, Find, and the value that is one of several
//	expression.go  Tracker: expressions whose unknown values have marks
//	call.go        the same for functions
//	native.go      expressions of the JSON syntax as native ones
package alternative

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Mark is a mark of an unknown value that can become a text of the configuration.
type Mark struct {
	At    hcl.Range // of the expression that has the text
	Named bool      // the text is that of an entry of an object whose name is secret, and the value can be the object
	Whole bool      // a part of a template has it no more if engines read another part: it is for texts that are mostly mere parts
}

// MinLength is the number of bytes from which on something counts as a secret by its name only: a literal part of a
// template, or the digits of a number.
const MinLength = 6

// Find returns the first Mark among marks, by its place in the text; of those with Named only, if so asked.
func Find(marks cty.ValueMarks, named bool) (first Mark, found bool) {
	for mark := range marks {
		if m, ok := mark.(Mark); ok && (m.Named || !named) && (!found || before(m, first)) {
			first, found = m, true
		}
	}
	return first, found
}

func before(a, b Mark) bool {
	return cmp.Or(cmp.Compare(a.At.Filename, b.At.Filename), cmp.Compare(a.At.Start.Byte, b.At.Start.Byte), cmp.Compare(a.At.End.Byte, b.At.End.Byte)) < 0
}

// Default returns what is known of a variable that has another value, or its default, which is v.
func (t *Tracker) Default(v cty.Value, at hcl.Range) cty.Value {
	return withWhole(t.oneOf([]option{{v, at}}))
}

// withWhole returns a value whose marks of this package, and those of its elements, have the field Whole.
func withWhole(v cty.Value) cty.Value {
	v, _ = cty.Transform(v, func(_ cty.Path, v cty.Value) (cty.Value, error) {
		v, marks := v.Unmark()
		out := others(marks)
		for m := range marks {
			if m, ok := m.(Mark); ok {
				m.Whole = true
				out[m] = struct{}{}
			}
		}
		return v.WithMarks(out), nil
	})
	return v
}

// isOfFiles reports whether a value is in the files, or one of several that all are.
func isOfFiles(v cty.Value) bool {
	if bare, _ := v.Unmark(); bare.IsKnown() {
		return v.IsWhollyKnown()
	}
	all := marksIn(v)
	for m := range all {
		if !m.Whole {
			return false
		}
	}
	return len(all) > 0
}

// marksIn returns the marks of this package in a value and its elements.
func marksIn(v cty.Value) map[Mark]bool {
	all := map[Mark]bool{}
	var walk func(v cty.Value)
	walk = func(v cty.Value) {
		v, marks := v.Unmark()
		for mark := range marks {
			if m, ok := mark.(Mark); ok {
				all[m] = true
			}
		}
		if v.IsKnown() && !v.IsNull() && v.CanIterateElements() {
			for it := v.ElementIterator(); it.Next(); {
				_, element := it.Element()
				walk(element)
			}
		}
	}
	walk(v)
	return all
}

// without returns a value without marks of this package, which it has itself: not those of its elements.
func without(v cty.Value) cty.Value {
	v, marks := v.Unmark()
	return v.WithMarks(others(marks))
}

func others(marks cty.ValueMarks) cty.ValueMarks {
	out := maps.Clone(marks)
	for mark := range marks {
		if _, ok := mark.(Mark); ok {
			delete(out, mark)
		}
	}
	return out
}

// withoutWhole returns a value without marks for whole values.
func withoutWhole(v cty.Value) cty.Value {
	v, marks := v.Unmark()
	out := maps.Clone(marks)
	for mark := range marks {
		if m, ok := mark.(Mark); ok && m.Whole {
			delete(out, mark)
		}
	}
	return v.WithMarks(out)
}

// inherit returns a value with the marks of another one, of which it is a part.
func inherit(v, from cty.Value) cty.Value {
	_, marks := from.Unmark()
	return v.WithMarks(marks)
}

// unsure is a mark of a collection whose elements are known, and of which the engines may have only some: its length and
// its keys are not known.
type unsure struct{}

// open is a mark of an unsure collection with elements that stand for any number of others, with other keys: the result of
// a loop over what is unknown.
type open struct{}

func isOpen(v cty.Value) bool { return v.HasMark(open{}) }

// IsKnown reports whether a value is that which every engine has.
func IsKnown(v cty.Value) bool {
	v, marks := v.Unmark()
	_, is := marks[unsure{}]
	return v.IsKnown() && !is
}

// option is one of the values that an expression can have, and where it is written.
type option struct {
	value cty.Value
	at    hcl.Range
}

// oneOf returns what is known of a value that is one of several, or of one that may be missing: an object or a tuple if
// they all are, whose elements are one of theirs, and an unknown value otherwise. It takes time in proportion to their
// size.
func (t *Tracker) oneOf(options []option) cty.Value {
	objects, tuples, length := 0, 0, 0
	for _, o := range options {
		switch v, _ := o.value.Unmark(); {
		case !v.IsKnown() || v.IsNull():
		case v.Type().IsObjectType() || v.Type().IsMapType():
			objects++
		case (v.Type().IsTupleType() || v.Type().IsListType()) && (tuples == 0 || length == v.LengthInt()):
			tuples, length = tuples+1, v.LengthInt()
		}
	}
	switch {
	case len(options) == 0:
		return cty.DynamicVal
	case len(options) == objects:
		attributes, marks := t.merged(options)
		return cty.ObjectVal(attributes).WithMarks(marks)
	case len(options) == tuples:
		elements, marks := t.merged(options)
		list := make([]cty.Value, length)
		for i := range list {
			list[i] = elements[strconv.Itoa(i)]
		}
		return cty.TupleVal(list).WithMarks(marks)
	}
	return t.unknownOf(options)
}

// merged returns the elements of collections, each of which is one of those with its key, and the marks of all.
func (t *Tracker) merged(options []option) (map[string]cty.Value, cty.ValueMarks) {
	elements := map[string][]option{}
	marks := cty.ValueMarks{}
	for _, o := range options {
		v, own := o.value.Unmark()
		maps.Copy(marks, own)
		for it := v.ElementIterator(); it.Next(); {
			key, element := it.Element()
			name := keyText(key)
			elements[name] = append(elements[name], option{element, o.at})
		}
	}
	out := make(map[string]cty.Value, len(elements))
	for name, some := range elements {
		if len(some) < len(options) {
			some = append(some, option{value: cty.DynamicVal}) // of a collection without it
			marks[unsure{}] = struct{}{}
		}
		out[name] = t.oneOf(some)
	}
	return out, marks
}

// keyText returns the key of an object, or the index of a list, as a text.
func keyText(key cty.Value) string {
	if key.Type() == cty.Number {
		return key.AsBigFloat().Text('f', 0)
	}
	return key.AsString()
}

// elementsOf returns the elements of a value; none if it is unknown.
func elementsOf(v cty.Value, at hcl.Range) (elements []option) {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() || !v.CanIterateElements() {
		return nil
	}
	for it := v.ElementIterator(); it.Next(); {
		_, element := it.Element()
		elements = append(elements, option{element, at})
	}
	return elements
}

// AnyElement returns what is known of a value that is one of the elements of another one.
func (t *Tracker) AnyElement(from cty.Value, at hcl.Range) cty.Value {
	elements := elementsOf(from, at)
	_, marks := from.Unmark()
	delete(marks, open{})
	return t.oneOf(elements).WithMarks(marks)
}

// elementOf returns any element of a value, or the one with a key if that is known.
func (t *Tracker) elementOf(from, key cty.Value, at hcl.Range) cty.Value {
	if IsKnown(key) {
		key, _ = key.Unmark()
		return t.follow(from, hcl.Traversal{hcl.TraverseIndex{Key: key, SrcRange: at}})
	}
	return t.AnyElement(from, at)
}

// unknownOf returns an unknown value that can be one of several, with one mark of a kind at most.
func (t *Tracker) unknownOf(options []option) cty.Value {
	ty := cty.NilType
	marks := cty.ValueMarks{}
	texts := map[Mark]Mark{} // the first ones, by the other fields
	whole := !slices.ContainsFunc(options, func(o option) bool { return !isOfFiles(o.value) })
	add := func(m Mark) {
		m.Whole = m.Whole && whole
		kind := Mark{Named: m.Named, Whole: m.Whole}
		if first, ok := texts[kind]; !ok || before(m, first) {
			texts[kind] = m
		}
	}
	for _, o := range options {
		v, own := o.value.Unmark()
		maps.Copy(marks, others(own))
		for m := range marksIn(o.value) {
			add(m)
		}
		if text, named := t.texts(v, false); text {
			add(Mark{At: o.at})
			if named {
				add(Mark{At: o.at, Named: true})
			}
		}
		switch {
		case ty == cty.NilType:
			ty = v.Type()
		case !ty.Equals(v.Type()):
			ty = cty.DynamicPseudoType
		}
	}
	if !ty.IsPrimitiveType() {
		ty = cty.DynamicPseudoType
	}
	for _, m := range texts {
		marks[m] = struct{}{}
	}
	return cty.UnknownVal(ty).WithMarks(marks)
}

// texts reports whether a value has a known text or number that can be secret, and whether one is an entry with a
// secret name.
func (t *Tracker) texts(v cty.Value, inNamed bool) (found, named bool) {
	v, _ = v.Unmark()
	switch ty := v.Type(); {
	case !v.IsKnown() || v.IsNull():
	case ty == cty.Number:
		return !t.ByName || IsLong(v), inNamed
	case ty == cty.String && !isHarmless(v.AsString()):
		return true, inNamed
	case v.CanIterateElements():
		hasNames := ty.IsObjectType() || ty.IsMapType()
		for it := v.ElementIterator(); it.Next() && !named; {
			key, element := it.Element()
			is, isNamed := t.texts(element, inNamed || hasNames && t.IsSecretName(key.AsString()))
			found, named = found || is, named || isNamed
		}
	}
	return found, named
}

// IsLong reports whether a number has so many digits that it can be a secret.
func IsLong(number cty.Value) bool {
	return len(number.AsBigFloat().Text('f', -1)) >= MinLength
}

// schemes are the words before the secret in a header Authorization.
var schemes = []string{"basic", "bearer", "digest", "token", "apikey", "negotiate"}

func isHarmless(text string) bool {
	text = strings.TrimSpace(text)
	return text == "" || slices.Contains(schemes, strings.ToLower(text))
}
