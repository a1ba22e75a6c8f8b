package oracle

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestReadmeListsTheIntendedDifferences(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range Wanted() {
		rows = append(rows, fmt.Sprintf("| %s | %s |", r.K, r.Why))
	}
	for _, r := range Mended() {
		rows = append(rows, fmt.Sprintf("| %s | %s |", r.K, r.Why))
	}
	for k, r := range handlerRows() {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", k, cmp.Or(r.kubelet, "any"), r.sonde, r.why))
	}
	for _, row := range rows {
		if !strings.Contains(string(text), "\n"+row+"\n") {
			t.Errorf("README.md lacks the row\n%s", row)
		}
	}
	if n := strings.Count(string(text), "\n| K"); n != len(rows)+3 { // plus three headers
		t.Errorf("README.md has %d rows and heads about a K number, want %d", n, len(rows)+3)
	}
}
