package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The Sonde configurations in docs/gateways are valid. The configurations of the gateways are run by the tests of package
// gateway.
func TestConfigurationsForGatewaysAreValid(t *testing.T) {
	pages, err := filepath.Glob("../../../../docs/gateways/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no pages: %v", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		common := ""
		for i, example := range examplesOf(string(text)) {
			if i == 0 {
				common = example // the targets and groups of the page, with its first gateway
			} else {
				example = common + strings.ReplaceAll(example, `gateway "edge"`, `gateway "another"`)
			}
			if err := parse(example); err != nil {
				t.Errorf("%s: %v", filepath.Base(page), err)
			}
		}
	}
}
