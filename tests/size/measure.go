package main

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"strings"
)

// add measures a file.
func (h *house) add(name string, source []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	h.rooms[room(name)] += linesOfCode(source)
	p := h.packages[path.Dir(name)]
	if p == nil {
		p = &goPackage{types: map[string]*ast.TypeSpec{}, imports: map[string]string{}}
		h.packages[path.Dir(name)] = p
	}
	p.addImports(file)
	for _, declaration := range file.Decls {
		h.addDeclaration(p, declaration)
		if f, ok := declaration.(*ast.FuncDecl); ok && f.Body != nil {
			h.functions = append(h.functions, files.Position(f.Body.Rbrace).Line-files.Position(f.Pos()).Line+1)
		}
	}
	h.locks.add(file)
	return nil
}

// linesOfCode counts the lines with a token other than a comment.
func linesOfCode(source []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines, last := 0, 0
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.SEMICOLON && text == "\n" { // the scanner inserts it at the end of a line
			continue
		}
		first := file.Line(at)
		end := first + strings.Count(text, "\n")
		lines += end - max(last, first-1)
		last = end
	}
}

func (p *goPackage) addImports(file *ast.File) {
	for _, i := range file.Imports {
		target := strings.Trim(i.Path.Value, `"`)
		name := path.Base(target)
		if i.Name != nil {
			name = i.Name.Name
		}
		p.imports[name] = target
	}
}

// addDeclaration counts exported names: those of the package, and methods of exported types.
func (h *house) addDeclaration(p *goPackage, declaration ast.Decl) {
	switch d := declaration.(type) {
	case *ast.FuncDecl:
		p.functions = append(p.functions, d)
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(typeName(d.Recv.List[0].Type))) {
			h.exported++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			h.addSpec(p, spec)
		}
	}
}

func (h *house) addSpec(p *goPackage, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		p.types[s.Name.Name] = s
		if s.Name.IsExported() {
			h.exported++
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				h.exported++
			}
		}
	}
}

func (l *locks) add(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			l.addType(n)
		case *ast.CallExpr:
			if isSignal(n) {
				l.signals++
			}
		}
		return true
	})
}

func (l *locks) addType(s *ast.SelectorExpr) {
	of, _ := s.X.(*ast.Ident)
	if of == nil {
		return
	}
	switch of.Name + "." + s.Sel.Name {
	case "sync.Mutex", "sync.RWMutex":
		l.mutexes++
	case "atomic.Pointer", "atomic.Value":
		l.pointers++
	}
}

// isSignal reports whether a call makes a channel of capacity 1, or a wake.Signal, which is one.
func isSignal(call *ast.CallExpr) bool {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		of, _ := s.X.(*ast.Ident)
		return of != nil && of.Name+"."+s.Sel.Name == "wake.New"
	}
	name, _ := call.Fun.(*ast.Ident)
	if name == nil || name.Name != "make" || len(call.Args) != 2 {
		return false
	}
	_, isChannel := call.Args[0].(*ast.ChanType)
	capacity, _ := call.Args[1].(*ast.BasicLit)
	return isChannel && capacity != nil && capacity.Value == "1"
}
