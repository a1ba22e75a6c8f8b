package tests

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// kubeletTable explains the numbers by which comments and tests cite the kubelet.
const kubeletTable = "../docs/kubelet.md"

var (
	kubeletNumber = regexp.MustCompile(`\bK[0-9]+\b`)
	kubeletRow    = regexp.MustCompile(`(?m)^\| (K[0-9]+) \| .+ \| .+ \| (.+) \|$`)
)

func TestEachCitedBehaviourOfTheKubeletIsExplained(t *testing.T) {
	explained := explainedNumbers(t)
	cited := map[string]string{} // by number: the first file that cites it
	for path := range textFiles(t) {
		for _, number := range kubeletNumber.FindAllString(readText(t, path), -1) {
			if _, seen := cited[number]; !seen {
				cited[number] = path
			}
		}
	}
	for number, path := range cited {
		if !slices.Contains(explained, number) {
			t.Errorf("%s cites %s, which has no row in docs/kubelet.md", path, number)
		}
	}
}

// explainedNumbers returns the numbers that have a row, and checks that each row describes Sonde's behaviour.
func explainedNumbers(t *testing.T) []string {
	t.Helper()
	var numbers []string
	for _, row := range kubeletRow.FindAllStringSubmatch(readText(t, kubeletTable), -1) {
		number, sonde := row[1], row[2]
		if slices.Contains(numbers, number) {
			t.Errorf("docs/kubelet.md has two rows for %s", number)
		}
		if !slices.ContainsFunc([]string{"same", "changed", "never copied"}, func(s string) bool { return strings.HasPrefix(sonde, s) }) {
			t.Errorf("docs/kubelet.md: %s must say what Sonde does: same, changed or never copied", number)
		}
		numbers = append(numbers, number)
	}
	if len(numbers) == 0 {
		t.Fatal("docs/kubelet.md has no rows")
	}
	return numbers
}

// textFiles yields the paths of the repository's sources and documents.
func textFiles(t *testing.T) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, d.Name()):
				return filepath.SkipDir
			case d.IsDir() || !slices.Contains([]string{".go", ".md", ".txt", ".txtar", ".hcl"}, filepath.Ext(path)):
				return nil
			case !yield(path):
				return filepath.SkipAll
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	docLink    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	docHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	for path := range textFiles(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, link := range docLink.FindAllStringSubmatch(readText(t, path), -1) {
			to, anchor := link[1], link[2]
			if strings.Contains(to, ":") {
				continue // on another host
			}
			file := path
			if to != "" {
				file = filepath.Join(filepath.Dir(path), to)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s has a link to %s, which does not exist", path, to)
			} else if anchor != "" && !slices.Contains(anchorsOf(readText(t, file)), anchor) {
				t.Errorf("%s has a link to #%s, which %s does not have", path, anchor, file)
			}
		}
	}
}

// anchorsOf returns the anchors of a document's headings, as GitHub generates them.
func anchorsOf(text string) []string {
	var all []string
	for _, h := range docHeading.FindAllStringSubmatch(text, -1) {
		words := strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || r == ' ' || r == '-' || r == '_' {
				return unicode.ToLower(r)
			}
			return -1
		}, h[1])
		all = append(all, strings.ReplaceAll(words, " ", "-"))
	}
	return all
}
