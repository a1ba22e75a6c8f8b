package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/sonde-probe/sonde/config/internal/tree"
	"github.com/sonde-probe/sonde/discover"
)

// decodeContainers decodes a target for each container that was found, by its labels. Labels are from strangers: a container whose labels
// are wrong is left out with a warning, and the others go on.
func (t *targetDecoder) decodeContainers(of discover.Docker, found discover.Elements, at hcl.Range) *discover.LeftOutError {
	left := &discover.LeftOutError{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if problem := t.decodeContainer(foundContainer{name: name, of: of, element: found[name]}); problem != "" {
			t.e.add(report{isWarning: true, at: at, summary: problem, hint: "correct the label; until then the container is no target"})
			if left.N++; left.N == 1 {
				left.First = problem
			}
		}
	}
	if left.N == 0 {
		return nil
	}
	return left
}

// decodeContainer decodes the target of a container, or returns what is wrong with it.
func (t *targetDecoder) decodeContainer(l foundContainer) (problem string) {
	block, err := l.block()
	if _, isTaken := t.origins[l.name]; err == nil && isTaken {
		err = errors.New("there is a target of this name already")
	}
	if err != nil {
		return fmt.Sprintf("container %s: %v", l.name, err)
	}
	outer := t.e.collector
	defer func() { t.e.collector = outer }()
	for _, dryRun := range []bool{true, false} { // the first leaves nothing behind
		t.e.collector = newCollector()
		file := tree.Native(&hclsyntax.Body{Blocks: hclsyntax.Blocks{block}}, &hcl.EvalContext{})
		read, _ := t.e.read(&file, t.language.file.body)
		if len(read.Blocks) == 1 && isValidTargetName(read.Blocks[0], l.name, block.TypeRange, t.e.collector) {
			content, spec := t.readTarget(read.Blocks[0])
			spec.dryRun = dryRun
			t.element(read.Blocks[0], content, spec)
		}
		for _, d := range t.e.list {
			if !d.IsWarning {
				return fmt.Sprintf("%s: %s", d.Range.File, oneText(d.Summary, d.Hint))
			}
		}
	}
	return ""
}

// oneText returns the text of a diagnostic about a label, in one line.
func oneText(summary, hint string) string {
	switch {
	case hint == "":
		return summary
	case strings.HasPrefix(hint, "write it inside"): // a block, which a label is not
		hint = "a label cannot set it"
	}
	return summary + " (" + strings.ReplaceAll(hint, "\n", "; ") + ")"
}

// foundContainer is a container that was found.
type foundContainer struct {
	name    string
	of      discover.Docker
	element discover.Element
}

// The labels of a container, after discover.LabelPrefix. All others are KIND.NAME: a handler, or an argument of it or of the probe block.
const (
	labelEnable = "enable" // which says nothing, but is what people match
	labelGroup  = "group"  // of the target, for group blocks with match
	labelTarget = "label." // and the name of a label of the target
)

var labelName = regexp.MustCompile(`^[a-zA-Z0-9._/-]+$`)

// ofHandler are the labels that are arguments of the handler block, by handler. Labels set nothing that reaches outside the container, such as another
// host, a proxy or a file.
var ofHandler = map[string][]string{"http": {"port", "scheme"}, "tcp": {"port"}, "grpc": {"port", "service"}, "exec": nil}

// block returns the target block that the labels mean. What is wrong in it is reported at the label, which is the name of the file of its range.
func (l foundContainer) block() (*hclsyntax.Block, error) {
	target := l.newBlock("", "target", l.name)
	container := l.newBlock("", "container", l.name)
	if l.of.Host != "" {
		l.set(container, "", "host", cty.StringVal(l.of.Host))
	}
	labels, probes := map[string]cty.Value{}, map[string]map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(l.element.Meta)) {
		value, short := l.element.Meta[name], strings.TrimPrefix(name, discover.LabelPrefix)
		kind, field, isProbe := strings.Cut(short, ".")
		own, isOfTarget := strings.CutPrefix(short, labelTarget)
		_, isMatched := l.of.Match[name]
		switch {
		case !labelName.MatchString(name):
			return nil, fmt.Errorf("label %.80q has a name with other characters than letters, digits, . _ - and /", name)
		case short == labelGroup:
			labels[labelGroup] = cty.StringVal(value)
		case isOfTarget:
			labels[own] = cty.StringVal(value)
		case isProbe:
			if probes[kind] == nil {
				probes[kind] = map[string]string{}
			}
			probes[kind][field] = value
		case short != labelEnable && !isMatched:
			return nil, fmt.Errorf("label %s is unknown; write %sgroup, %slabel.NAME, or %sreadiness.http and the like", name, discover.LabelPrefix, discover.LabelPrefix, discover.LabelPrefix)
		}
	}
	if len(probes) == 0 {
		return nil, fmt.Errorf("no label configures a probe; write %sreadiness.http=/healthz, for example", discover.LabelPrefix)
	}
	if len(labels) > 0 {
		l.set(target, "", "labels", cty.MapVal(labels))
	}
	target.Body.Blocks = append(target.Body.Blocks, container)
	for _, kind := range slices.Sorted(maps.Keys(probes)) {
		p, err := l.probe(kind, probes[kind])
		if err != nil {
			return nil, err
		}
		target.Body.Blocks = append(target.Body.Blocks, p)
	}
	return target, nil
}

// probe returns the probe block of a kind, by its labels.
func (l foundContainer) probe(kind string, fields map[string]string) (*hclsyntax.Block, error) {
	var handlers []string
	for _, name := range slices.Sorted(maps.Keys(ofHandler)) {
		if _, has := fields[name]; has {
			handlers = append(handlers, name)
		}
	}
	if len(handlers) != 1 {
		return nil, fmt.Errorf("its labels %s%s.* have %d handlers; write one of http, tcp, grpc and exec, such as %s%s.http=/healthz", discover.LabelPrefix, kind, len(handlers), discover.LabelPrefix, kind)
	}
	name := handlers[0]
	label := kind + "." + name
	p, handler := l.newBlock(label, "probe", kind), l.newBlock(label, name)
	p.Body.Blocks = hclsyntax.Blocks{handler}
	switch value := fields[name]; name {
	case "http":
		l.set(handler, label, "path", cty.StringVal(value))
		l.set(handler, label, "redirects", cty.StringVal("none")) // one leads to other ports of this machine
	case "exec":
		command, err := commandOf(value)
		if err != nil {
			return nil, fmt.Errorf("label %s%s: %w", discover.LabelPrefix, label, err)
		}
		l.set(handler, label, "command", command)
	default:
		if value != "" {
			l.set(handler, label, "port", cty.StringVal(value))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case field == name:
		case slices.Contains(ofHandler[name], field):
			l.set(handler, kind+"."+field, field, cty.StringVal(fields[field]))
		default:
			l.set(p, kind+"."+field, field, literal(fields[field]))
		}
	}
	if _, has := handler.Body.Attributes["port"]; !has && name != "exec" {
		if l.element.Port == 0 {
			return nil, fmt.Errorf("label %s%s has no port, and the container does not expose exactly one; write %s%s.port=8080", discover.LabelPrefix, label, discover.LabelPrefix, kind)
		}
		l.set(handler, label, "port", cty.StringVal(strconv.Itoa(int(l.element.Port))))
	}
	return p, nil
}

// literal returns the value of a label of a probe block: a number, or text such as a duration.
func literal(value string) cty.Value {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return cty.NumberIntVal(n)
	}
	return cty.StringVal(value)
}

// commandOf returns the command of an exec label: a list in JSON, or a line for the shell of the container, as in a HEALTHCHECK.
func commandOf(value string) (cty.Value, error) {
	words := []string{"/bin/sh", "-c", value}
	if strings.HasPrefix(value, "[") {
		words = nil
		if err := json.Unmarshal([]byte(value), &words); err != nil {
			words = nil
		}
	}
	if value == "" || len(words) == 0 {
		return cty.NilVal, fmt.Errorf("%.80q is no command; write [\"cat\", \"/tmp/healthy\"], or a line for /bin/sh", value)
	}
	values := make([]cty.Value, len(words))
	for i, word := range words {
		values[i] = cty.StringVal(word)
	}
	return cty.ListVal(values), nil
}

// at returns the place of a label, for messages.
func (l foundContainer) at(label string) hcl.Range {
	if label == "" {
		return hcl.Range{Filename: "container " + l.name}
	}
	return hcl.Range{Filename: "container " + l.name + ", label " + discover.LabelPrefix + label}
}

func (l foundContainer) newBlock(label, kind string, names ...string) *hclsyntax.Block {
	at := l.at(label)
	return &hclsyntax.Block{
		Type: kind, Labels: names, TypeRange: at, LabelRanges: slices.Repeat([]hcl.Range{at}, len(names)), OpenBraceRange: at, CloseBraceRange: at,
		Body: &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: at, EndRange: at},
	}
}

func (l foundContainer) set(b *hclsyntax.Block, label, name string, value cty.Value) {
	at := l.at(label)
	at.Start.Byte = len(b.Body.Attributes) // keeps the order
	b.Body.Attributes[name] = &hclsyntax.Attribute{Name: name, Expr: &hclsyntax.LiteralValueExpr{Val: value, SrcRange: at}, SrcRange: at, NameRange: at, EqualsRange: at}
}
