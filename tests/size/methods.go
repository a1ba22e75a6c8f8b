package main

import (
	"go/ast"
	"path"
	"strings"
)

// modulePath is the prefix of the import paths of all our modules.
const modulePath = "github.com/sonde-probe/sonde/"

// methods counts the methods of each type: its own, those promoted from embedded fields, and the functions whose first parameter
// has that type.
func (h *house) methods() map[string]int {
	counts := map[string]int{}
	for dir, p := range h.packages {
		for name := range p.types {
			counts[path.Join(dir, name)] = h.count(dir, name, map[string]bool{})
		}
	}
	return counts
}

// count counts the methods of a type that is not in seen.
func (h *house) count(dir, name string, seen map[string]bool) int {
	p := h.packages[dir]
	if p == nil || p.types[name] == nil || seen[dir+" "+name] {
		return 0
	}
	seen[dir+" "+name] = true
	n := 0
	for _, f := range p.functions {
		if receiver(f) == name || f.Recv == nil && firstParameter(f) == name {
			n++
		}
	}
	structure, _ := p.types[name].Type.(*ast.StructType)
	if structure == nil {
		return n
	}
	for _, field := range structure.Fields.List {
		if len(field.Names) == 0 {
			embeddedDir, embedded := p.resolve(dir, field.Type)
			n += h.count(embeddedDir, embedded, seen)
		}
	}
	return n
}

// resolve returns the folder and the name of a type of our modules that a package in dir uses.
func (p *goPackage) resolve(dir string, t ast.Expr) (of, name string) {
	selector, _ := unpointed(t).(*ast.SelectorExpr)
	if selector == nil {
		return dir, typeName(t)
	}
	from, _ := selector.X.(*ast.Ident)
	if from == nil {
		return "", ""
	}
	target, ours := strings.CutPrefix(p.imports[from.Name], modulePath)
	if !ours {
		return "", ""
	}
	return target, selector.Sel.Name
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return typeName(f.Recv.List[0].Type)
}

func firstParameter(f *ast.FuncDecl) string {
	if len(f.Type.Params.List) == 0 {
		return ""
	}
	return typeName(f.Type.Params.List[0].Type)
}

// typeName returns the name of a type of the same package, or of a pointer to it; "" for any other type.
func typeName(t ast.Expr) string {
	switch t := unpointed(t).(type) {
	case *ast.Ident:
		return t.Name
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.IndexListExpr:
		return typeName(t.X)
	}
	return ""
}

func unpointed(t ast.Expr) ast.Expr {
	if pointer, ok := t.(*ast.StarExpr); ok {
		return pointer.X
	}
	return t
}

// fields counts the fields of each struct.
func (h *house) fields() map[string]int {
	counts := map[string]int{}
	for dir, p := range h.packages {
		for name, spec := range p.types {
			if structure, ok := spec.Type.(*ast.StructType); ok {
				counts[path.Join(dir, name)] = structure.Fields.NumFields()
			}
		}
	}
	return counts
}
