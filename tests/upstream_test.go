package tests

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/upstream.txt anew from upstream's sources")

// upstreamTests lists upstream's tests that upstream.md must have, one per line: a file and the name of a test in it.
const upstreamTests = "testdata/upstream.txt"

// wholes are the files and directories whose tests are all listed. Of other files, only the tests that concern probes are listed.
var wholes = []string{
	"pkg/kubelet/prober",
	"pkg/probe",
	"pkg/kubelet/status/generate_test.go",
	"test/e2e/common/node/container_probe.go",
	"test/e2e_node/probe_stress_test.go",
	"client-go/util/flowcontrol/backoff_test.go",
}

// row is a row of upstream.md: a test of upstream with Sonde's tests.
type row struct {
	line int
	test string // file and name, as in upstreamTests
	ours []ref
	text string // the last column
}

// ref refers to one of Sonde's tests, or to a script.
type ref struct {
	file string
	test string // empty for a script
	part string // a subtest, or empty
}

func TestTableHasARowForEachUpstreamTest(t *testing.T) {
	listed := readList(t)
	for _, r := range readTable(t) {
		if !slices.Contains(listed, r.test) {
			t.Errorf("upstream.md:%d: %s is not in %s, or has a row already", r.line, r.test, upstreamTests)
		}
		listed = slices.DeleteFunc(listed, func(test string) bool { return test == r.test })
	}
	for _, test := range listed {
		t.Errorf("upstream.md has no row for %s", test)
	}
}

func TestEachRowHasATestOrAReason(t *testing.T) {
	for _, r := range readTable(t) {
		reason, none := strings.CutPrefix(r.text, "none: ")
		switch {
		case none && (len(r.ours) > 0 || len(reason) < 20):
			t.Errorf("upstream.md:%d: %q is no reason to have no test", r.line, r.text)
		case !none && len(r.ours) == 0:
			t.Errorf("upstream.md:%d: %s has neither a test nor a reason", r.line, r.test)
		}
	}
}

func TestEachTestOfTheTableExists(t *testing.T) {
	files := map[string]map[string]*ast.FuncDecl{}
	for line, text := range readLines(t) {
		for _, ours := range refsIn(text) {
			if problem := missing(ours, files); problem != "" {
				t.Errorf("upstream.md:%d: %s", line+1, problem)
			}
		}
	}
}

func TestEachTestNamedTestUpstreamIsInTheTable(t *testing.T) {
	table := strings.Join(readLines(t), "\n")
	for file := range testFiles(t, "..") {
		if strings.HasPrefix(filepath.ToSlash(file), "../tests/oracle/") {
			continue
		}
		for name := range functions(t, file) {
			if strings.HasPrefix(name, "TestUpstream") && !strings.Contains(table, "["+name) {
				t.Errorf("%s in %s is not in upstream.md", name, file)
			}
		}
	}
}

// The list is checked only if upstream's sources are on the machine: they are dependencies of tests/oracle.
func TestListMatchesUpstreamsSources(t *testing.T) {
	found := findUpstream(t)
	listed := readList(t)
	if *update {
		listed = slices.DeleteFunc(listed, isInWhole)
		listed = append(listed, slices.DeleteFunc(slices.Sorted(maps.Keys(found)), func(s string) bool { return !isInWhole(s) })...)
		slices.Sort(listed)
		if err := os.WriteFile(upstreamTests, []byte(strings.Join(listed, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range listed {
		if !found[test] {
			t.Errorf("upstream has no test %s", test)
		}
	}
	for test := range found {
		if isInWhole(test) && !slices.Contains(listed, test) {
			t.Errorf("%s is not listed", test)
		}
	}
}

func isInWhole(test string) bool {
	file, _, _ := strings.Cut(test, " ")
	return slices.ContainsFunc(wholes, func(whole string) bool { return within(whole, file) })
}

func readList(t *testing.T) []string {
	t.Helper()
	list, err := os.ReadFile(upstreamTests)
	if err != nil {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(list), func(r rune) bool { return r == '\n' })
}

var (
	heading  = regexp.MustCompile("^#+ `([^`]+)`")
	tableRow = regexp.MustCompile(`^\| (.+?) \| (.+) \| (.+) \|$`)
	link     = regexp.MustCompile(`\[(Test\w+)(?:: ([^\]]+))?\]\(\.\./([^)]+_test\.go)\)|\[[^\]]+\]\(\.\./([^)]+\.txtar)\)`)
)

// readLines reads upstream.md.
func readLines(t *testing.T) []string {
	t.Helper()
	table, err := os.ReadFile("upstream.md")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(table), "\n")
}

// refsIn returns the tests and scripts that a text links to.
func refsIn(text string) []ref {
	var refs []ref
	for _, l := range link.FindAllStringSubmatch(text, -1) {
		refs = append(refs, ref{file: l[3] + l[4], test: l[1], part: l[2]})
	}
	return refs
}

// readTable reads the rows of upstream.md. The headings name the files.
func readTable(t *testing.T) []row {
	t.Helper()
	var rows []row
	file := ""
	for line, text := range readLines(t) {
		if h := heading.FindStringSubmatch(text); h != nil {
			file = h[1]
		}
		cells := tableRow.FindStringSubmatch(text)
		if cells == nil || cells[1] == "upstream" || strings.HasPrefix(cells[1], "---") {
			continue
		}
		if file == "" {
			t.Errorf("upstream.md:%d: there is no file before the row", line+1)
		}
		test := file + " " + strings.Trim(cells[1], "`")
		rows = append(rows, row{line: line + 1, test: test, ours: refsIn(cells[3]), text: cells[3]})
	}
	if len(rows) == 0 {
		t.Fatal("upstream.md has no rows")
	}
	return rows
}

// missing describes the target of a link in a row that does not exist; "" if it exists. It caches parsed files.
func missing(r ref, files map[string]map[string]*ast.FuncDecl) string {
	path := filepath.Join("..", filepath.FromSlash(r.file))
	if _, err := os.Stat(path); err != nil {
		return "there is no file " + r.file
	}
	if r.test == "" {
		return ""
	}
	if files[path] == nil {
		var err error
		if files[path], err = parseFunctions(path); err != nil {
			return err.Error()
		}
	}
	f := files[path][r.test]
	switch {
	case f == nil:
		return r.file + " has no " + r.test
	case r.part != "" && !contains(f, r.part):
		return r.test + " in " + r.file + " has no part " + strconv.Quote(r.part)
	}
	return ""
}

// contains reports whether a function has a string literal equal to a text.
func contains(f *ast.FuncDecl, text string) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			value, _ := strconv.Unquote(s.Value)
			found = found || value == text
		}
		return !found
	})
	return found
}

// testFiles yields the test files below a directory.
func testFiles(t *testing.T, root string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata"):
				return filepath.SkipDir
			case strings.HasSuffix(path, "_test.go") && !yield(path):
				return filepath.SkipAll
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func functions(t *testing.T, file string) map[string]*ast.FuncDecl {
	t.Helper()
	all, err := parseFunctions(file)
	if err != nil {
		t.Error(err)
	}
	return all
}

// parseFunctions returns the functions of a file by name.
func parseFunctions(file string) (map[string]*ast.FuncDecl, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	all := map[string]*ast.FuncDecl{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			all[f.Name.Name] = f
		}
	}
	return all, nil
}

// findUpstream returns the tests of all listed files, and of the directories of wholes.
func findUpstream(t *testing.T) map[string]bool {
	t.Helper()
	roots := map[string]string{"": moduleDir(t, "k8s.io/kubernetes"), "client-go/": moduleDir(t, "k8s.io/client-go")}
	files := map[string]bool{}
	for _, test := range readList(t) {
		file, _, _ := strings.Cut(test, " ")
		files[file] = true
	}
	for _, whole := range wholes {
		if strings.HasSuffix(whole, ".go") {
			files[whole] = true
			continue
		}
		for file := range testFiles(t, filepath.Join(roots[""], whole)) {
			inside, err := filepath.Rel(roots[""], file)
			if err != nil {
				t.Fatal(err)
			}
			files[filepath.ToSlash(inside)] = true
		}
	}
	found := map[string]bool{}
	for file := range files {
		path := filepath.Join(roots[""], file)
		if inside, ok := strings.CutPrefix(file, "client-go/"); ok {
			path = filepath.Join(roots["client-go/"], inside)
		}
		for _, name := range upstreamNames(t, path) {
			found[file+" "+name] = true
		}
	}
	return found
}

// moduleDir returns the directory of a module's sources, or "" if they are not on this machine.
func moduleDir(t *testing.T, path string) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	list.Dir = "oracle"
	list.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := list.Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("the sources of %s are not on this machine: %v", path, err)
	}
	return dir
}

// upstreamNames returns the names of a file's tests: function names, or Ginkgo's texts.
func upstreamNames(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
				names = append(names, n.Name.Name)
			}
		case *ast.CallExpr:
			if text, ok := ginkgoText(n); ok {
				names = append(names, text)
			}
		}
		return true
	})
	return names
}

// ginkgoText returns the text of a call such as It("...", ...).
func ginkgoText(call *ast.CallExpr) (string, bool) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "It" && f.Sel.Name != "ConformanceIt" || len(call.Args) == 0 {
		return "", false
	}
	text, ok := call.Args[0].(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(text.Value)
	return value, err == nil
}
