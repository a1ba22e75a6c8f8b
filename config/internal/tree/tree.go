// Package tree reads blocks and arguments in HCL's native syntax and in its JSON
// syntax.
//
// HCL's own reader, Body.Content, drops a block with a wrong number of labels and has
// no optional labels. This one reports the number and knows the enclosing blocks of
// each block, for messages. HCL's body of a JSON file has to be told how many labels a block has before it reads the
// block, so that it cannot read defaults and probe blocks, whose last label is optional; here a JSON object is one of
// names with expressions, as an argument with an object is in the native syntax.
//
//	tree.go     Body, Block and BodySchema
//	read.go     reads a body in the native syntax by its schema
//	json.go     reads a body in the JSON syntax
//	hint.go     what to write instead of an unknown argument or block
//	constant.go whether a body depends on a loop
//	values.go   all that is set in a body, whatever its schema
package tree

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Body is the inside of a block, or of a file.
type Body struct {
	Ctx     *hcl.EvalContext // what the expressions in it can refer to
	Block   *Block           // the block it belongs to; nil for a file
	Element string           // the element of a loop that it was made for: `each.key = "a"`; empty outside loops

	native *hclsyntax.Body
	pairs  []pair // of a JSON object, or of an object in native syntax
}

// Block is one block. Those of all elements of a loop share their head.
type Block struct {
	*head
	Body   Body
	Parent *Body
}

// head is what a block is called.
type head struct {
	Type   string
	Name   hcl.Range // of the type
	Labels []Label
	Header hcl.Range // from the type to the last label
}

// Label is a label of a block.
type Label struct {
	Text  string
	Range hcl.Range
}

// Argument is a name and the expression it is set to.
type Argument struct {
	Name  string
	Range hcl.Range // of the name
	Expr  hcl.Expression
}

// BodySchema declares what a body may contain.
type BodySchema struct {
	Arguments []string
	Blocks    []BlockSchema
	Retired   map[string]string        // arguments that have no effect any more, with the hint what to write instead
	Unknown   func(name string) string // returns the hint for a block with another name; default: a list of the names

	any bool // it has arguments of all names, and no blocks
}

// Arguments is the schema of a body that has arguments of any name, and no blocks.
var Arguments = BodySchema{any: true}

// BlockSchema declares a nested block.
type BlockSchema struct {
	Type     string
	Labels   []string // the meaning of each label: "name"
	Optional int      // number of optional labels, the last ones
	Example  string   // an example of a header: `target "web"`
	Inside   []string // names of the arguments and blocks in it, for hints; required where labels are optional
	Object   bool     // it is written as an argument with an object: `name = { … }`
}

// Content is what a body contains of its BodySchema.
type Content struct {
	Arguments map[string]Argument
	Blocks    []*Block
}

// Problem is an error in a body that its BodySchema does not allow, or a warning.
type Problem struct {
	Range     hcl.Range
	Summary   string
	Hint      string
	IsWarning bool   // the body can be used
	Unknown   string // a name that is not known here, and whose Hint is only a list; else empty
}

// Path returns the block of the body and those around it, for messages:
// `target "web", probe "readiness"`. A file's path is empty.
func (b *Body) Path() string {
	if b.Block == nil {
		return ""
	}
	own := b.Block.String()
	if up := b.Block.Parent; up != nil && up.Block != nil {
		return up.Path() + ", " + own
	}
	return own
}

// Iteration returns the element of the innermost loop around the body, or "".
func (b *Body) Iteration() string {
	for at := b; at != nil; at = at.Block.Parent {
		if at.Element != "" {
			return at.Element
		}
		if at.Block == nil {
			return ""
		}
	}
	return ""
}

// String returns the block's header: `probe "readiness" "db"`.
func (h *head) String() string {
	var s strings.Builder
	s.WriteString(h.Type)
	for _, l := range h.Labels {
		s.WriteString(" " + strconv.Quote(l.Text))
	}
	return s.String()
}

// Label returns the text of label i, or "" if there is none.
func (h *head) Label(i int) string {
	if i < len(h.Labels) {
		return h.Labels[i].Text
	}
	return ""
}

// LabelRange returns the range of label i, or that of the header if there is none.
func (h *head) LabelRange(i int) hcl.Range {
	if i < len(h.Labels) {
		return h.Labels[i].Range
	}
	return h.Header
}

// in returns the body for one element of a loop: with the element's variables, and its
// name for messages.
func (b Body) in(ctx *hcl.EvalContext, element string) Body {
	b.Ctx, b.Element = ctx, element
	return b
}

// In returns the block for one element of a loop.
func (b *Block) In(ctx *hcl.EvalContext, element string) *Block {
	one := *b
	one.Body = b.Body.in(ctx, element)
	one.Body.Block = &one
	return &one
}

// Under returns the block as a part of another body with the same text.
func (b *Block) Under(parent *Body) *Block {
	one := *b
	one.Parent = parent
	one.Body.Ctx = parent.Ctx
	one.Body.Block = &one
	return &one
}

// OutsideLoop returns the body without the elements of loops in messages.
func (b *Body) OutsideLoop() *Body {
	out := *b
	out.Element = ""
	if b.Block != nil {
		block := *b.Block
		if block.Parent != nil {
			block.Parent = block.Parent.OutsideLoop()
		}
		out.Block = &block
	}
	return &out
}

// For returns the content of one body as that of another with the same text.
func (c Content) For(b *Body) Content {
	blocks := make([]*Block, len(c.Blocks))
	for i, inner := range c.Blocks {
		blocks[i] = inner.Under(b)
	}
	return Content{Arguments: c.Arguments, Blocks: blocks}
}

// Names returns the names of all arguments and blocks.
func (s BodySchema) Names() []string {
	names := slices.Clone(s.Arguments)
	for _, b := range s.Blocks {
		names = append(names, b.Type)
	}
	return names
}

func (s BodySchema) block(name string) (BlockSchema, bool) {
	for _, b := range s.Blocks {
		if b.Type == name {
			return b, true
		}
	}
	return BlockSchema{}, false
}

// Make returns the block that a dynamic block makes for one element: its body is that
// of the content block.
func (b *Block) Make(typ string, content *Block, ctx *hcl.EvalContext, element string) *Block {
	made := &Block{head: &head{Type: typ, Name: b.Name, Header: b.Header}, Parent: b.Parent}
	made.Body = content.Body.in(ctx, element)
	made.Body.Block = made
	return made
}

// Makes reports whether a dynamic block can make blocks of a type, or why not.
func (s BodySchema) Makes(typ string, at hcl.Range) (Problem, bool) {
	blocks := BodySchema{Unknown: s.Unknown, Blocks: slices.DeleteFunc(slices.Clone(s.Blocks), func(b BlockSchema) bool { return b.Type == "dynamic" || b.Object })}
	if _, ok := blocks.block(typ); ok {
		return Problem{}, true
	}
	hint, _ := blocks.hint(typ, false)
	return Problem{Range: at, Summary: fmt.Sprintf("unknown block %q", typ), Hint: hint}, false
}

// Labelled reports whether a block has the labels that it needs, or why not.
func (s BodySchema) Labelled(b *Block) (Problem, bool) {
	schema, _ := s.block(b.Type)
	r := reader{}
	if r.labels(b, schema) {
		return Problem{}, true
	}
	return r.problems[0], false
}
