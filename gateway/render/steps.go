package render

import (
	"fmt"
	"slices"
	"text/template"
	"text/template/parse"
)

// maxSteps bounds how often an execution of a template begins a pass of a loop or a template
// that is called: ten loops over 100,000 members. So many take about a second.
const maxSteps = 1 << 20

// stepName is the function by which templates count their steps. Templates of users cannot call
// it, since it is not defined while these are parsed.
const stepName = "_step"

// countSteps makes a template and those that it defines call the function stepName at the
// beginning of each pass of a loop, and of each template.
func countSteps(t *template.Template) error {
	trees, err := parse.Parse(stepName, "{{"+stepName+"}}", "", "", map[string]any{stepName: step})
	if err != nil {
		return err
	}
	call := trees[stepName].Root.Nodes[0]
	for _, d := range t.Templates() {
		if d.Tree == nil || d.Root == nil {
			continue
		}
		countLoops(d.Root, call)
		d.Root.Nodes = slices.Insert(d.Root.Nodes, 0, call)
	}
	return nil
}

// countLoops adds call to the bodies of all loops in a list.
func countLoops(list *parse.ListNode, call parse.Node) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.IfNode:
			countLoops(n.List, call)
			countLoops(n.ElseList, call)
		case *parse.WithNode:
			countLoops(n.List, call)
			countLoops(n.ElseList, call)
		case *parse.RangeNode:
			countLoops(n.List, call)
			countLoops(n.ElseList, call)
			n.List.Nodes = slices.Insert(n.List.Nodes, 0, call)
		}
	}
}

// stepError is the error of an execution that takes more than maxSteps.
type stepError struct{}

func (stepError) Error() string {
	return fmt.Sprintf("its loops and calls take more than %d steps", maxSteps)
}

// step stands for the function of an execution, which steps returns.
func step() (string, error) { return "", nil }

// steps returns the function stepName for one execution.
func steps() template.FuncMap {
	n := 0
	return template.FuncMap{stepName: func() (string, error) {
		if n++; n > maxSteps {
			return "", stepError{}
		}
		return "", nil
	}}
}
