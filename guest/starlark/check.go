package main

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"

	"github.com/sonde-probe/sonde/guest"
)

// checker finds mistakes that would otherwise appear only when an attempt reaches them: unknown attributes of t, its
// connections and the modules, unknown arguments of their functions, and endless loops. It accepts expressions of
// unknown type.
type checker struct {
	types map[*syntax.Ident]starlark.HasAttrs // of variables that are set once, by first binding
	sets  map[*syntax.Ident]int               // number of assignments to each variable
	wrong *mistake                            // the first one
}

// mistake is a mistake with its position.
type mistake struct {
	at      syntax.Position
	problem string
}

// check returns the first mistake in a resolved script, or nil.
func check(f *syntax.File) *mistake {
	c := &checker{types: map[*syntax.Ident]starlark.HasAttrs{}, sets: map[*syntax.Ident]int{}}
	c.countSets(f)
	if attempt := attemptIn(f); attempt != nil && len(attempt.Params) == 1 {
		if t, ok := attempt.Params[0].(*syntax.Ident); ok && c.sets[firstOf(t)] == 0 {
			c.types[firstOf(t)] = &target{host: guest.Target[settings]{Settings: &settings{}}}
		}
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		if c.wrong == nil {
			c.visit(n)
		}
		return c.wrong == nil
	})
	return c.wrong
}

// attemptIn returns the definition of the function attempt, or nil.
func attemptIn(f *syntax.File) *syntax.DefStmt {
	for _, s := range f.Stmts {
		if d, ok := s.(*syntax.DefStmt); ok && d.Name.Name == "attempt" {
			return d
		}
	}
	return nil
}

// firstOf returns the first binding of a variable.
func firstOf(i *syntax.Ident) *syntax.Ident {
	if b, ok := i.Binding.(*resolve.Binding); ok {
		return b.First
	}
	return nil
}

// countSets counts the assignments to variables, without parameters.
func (c *checker) countSets(f *syntax.File) {
	count := func(e syntax.Expr) {
		syntax.Walk(e, func(n syntax.Node) bool {
			if i, ok := n.(*syntax.Ident); ok {
				c.sets[firstOf(i)]++
			}
			return true
		})
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.AssignStmt:
			count(n.LHS)
		case *syntax.ForStmt:
			count(n.Vars)
		case *syntax.ForClause:
			count(n.Vars)
		}
		return true
	})
}

func (c *checker) visit(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.AssignStmt:
		if i, ok := n.LHS.(*syntax.Ident); ok && n.Op == syntax.EQ && firstOf(i) != nil && c.sets[firstOf(i)] == 1 {
			if of := c.typeOf(n.RHS); of != nil {
				c.types[firstOf(i)] = of
			}
		}
	case *syntax.DotExpr:
		c.checkName(n)
	case *syntax.CallExpr:
		c.checkKeywords(n)
	case *syntax.WhileStmt:
		c.checkLoop(n)
	}
}

// typeOf returns a value with the same attributes as an expression, or nil if its type is unknown.
func (c *checker) typeOf(e syntax.Expr) starlark.HasAttrs {
	switch e := e.(type) {
	case *syntax.ParenExpr:
		return c.typeOf(e.X)
	case *syntax.Ident:
		b, ok := e.Binding.(*resolve.Binding)
		if ok && b.Scope == resolve.Predeclared {
			of, _ := predeclared[e.Name].(*starlarkstruct.Module)
			if of == nil {
				return nil
			}
			return of
		}
		return c.types[firstOf(e)]
	case *syntax.CallExpr:
		if dot, ok := e.Fn.(*syntax.DotExpr); ok && dot.Name.Name == "dial" {
			if _, isTarget := c.typeOf(dot.X).(*target); isTarget {
				return new(conn)
			}
		}
	}
	return nil
}

func (c *checker) checkName(e *syntax.DotExpr) {
	of := c.typeOf(e.X)
	if of == nil {
		return
	}
	if names := of.AttrNames(); !slices.Contains(names, e.Name.Name) {
		c.wrong = &mistake{e.Name.NamePos, fmt.Sprintf("%s has no %s: it has %s", textOf(e.X), e.Name.Name, strings.Join(names, ", "))}
	}
}

// textOf returns the name of a value in the script.
func textOf(e syntax.Expr) string {
	if i, ok := e.(*syntax.Ident); ok {
		return i.Name
	}
	return "the connection"
}

// checkKeywords checks the keyword arguments of a call.
func (c *checker) checkKeywords(e *syntax.CallExpr) {
	dot, ok := e.Fn.(*syntax.DotExpr)
	if !ok {
		return
	}
	of := c.typeOf(dot.X)
	if of == nil || dot.Name.Name == "catch" { // its arguments are those of another function
		return
	}
	var known []string
	for _, arg := range e.Args {
		b, ok := arg.(*syntax.BinaryExpr)
		if !ok || b.Op != syntax.EQ {
			continue
		}
		if known == nil {
			if known = parametersOf(of, dot.Name.Name); known == nil {
				return
			}
		}
		if name, ok := b.X.(*syntax.Ident); ok && !slices.Contains(known, name.Name) {
			c.wrong = &mistake{name.NamePos, fmt.Sprintf("%s.%s takes no argument %s: it takes %s", textOf(dot.X), dot.Name.Name, name.Name, strings.Join(known, ", "))}
			return
		}
	}
}

// parametersKey is the thread-local variable that receives the names of the arguments that a function reads.
const parametersKey = "parameters"

// parametersOf returns the argument names of a function of this plugin, or nil if they are unknown.
func parametersOf(of starlark.HasAttrs, name string) (names []string) {
	f, err := of.Attr(name)
	call, ok := f.(*starlark.Builtin)
	if err != nil || !ok {
		return nil
	}
	thread := &starlark.Thread{}
	thread.SetLocal(parametersKey, &names)
	defer func() { _ = recover() }() // a function that ignores errParameters may use an argument that it did not get
	_, _ = call.CallInternal(thread, nil, nil)
	return names
}

// checkLoop checks that a loop whose condition is always true contains a statement that can end it;
// any call counts.
func (c *checker) checkLoop(w *syntax.WhileStmt) {
	always, ok := w.Cond.(*syntax.Ident)
	one, isLiteral := w.Cond.(*syntax.Literal)
	if !(ok && always.Name == "True" || isLiteral && one.Token == syntax.INT && one.Raw != "0") {
		return
	}
	ends := false
	for _, s := range w.Body {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.CallExpr, *syntax.ReturnStmt:
				ends = true
			case *syntax.BranchStmt:
				ends = ends || n.Token == syntax.BREAK
			}
			return !ends
		})
	}
	if !ends {
		c.wrong = &mistake{w.While, "endless loop: it contains no break, return or call"}
	}
}

// openEnd returns the position at which attempt may end without a result, if there is one.
func openEnd(f *syntax.File) (at syntax.Position, isOpen bool) {
	d := attemptIn(f)
	if d == nil || ends(d.Body) {
		return at, false
	}
	last, _ := d.Body[len(d.Body)-1].Span()
	return last, true
}

// ends reports whether statements always end their function, as far as can be determined: a loop that contains a
// return is assumed to reach it.
func ends(all []syntax.Stmt) bool {
	if len(all) == 0 {
		return false
	}
	switch s := all[len(all)-1].(type) {
	case *syntax.ReturnStmt:
		return true
	case *syntax.IfStmt:
		return ends(s.True) && ends(s.False)
	case *syntax.ForStmt:
		return returns(s)
	case *syntax.WhileStmt:
		return returns(s)
	case *syntax.ExprStmt:
		call, ok := s.X.(*syntax.CallExpr)
		if !ok {
			return false
		}
		f, ok := call.Fn.(*syntax.Ident)
		return ok && f.Name == "fail"
	}
	return false
}

func returns(s syntax.Stmt) (found bool) {
	syntax.Walk(s, func(n syntax.Node) bool {
		_, is := n.(*syntax.ReturnStmt)
		found = found || is
		return !found
	})
	return found
}
