package kube

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// document is one document of a YAML file.
type document struct {
	line int // its first line, from 1
	text []byte
}

// marker matches the start of a document: a line that is ---, or begins with --- and white space. The rest of that line
// belongs to the document.
var marker = regexp.MustCompile(`(?m)^---(?:[ \t\r]*(?:\n|\z)|[ \t])`)

// split splits a YAML file at its document markers. Empty documents are omitted.
func split(text []byte) (all []document) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	line, start := 1, 0
	for _, next := range append(marker.FindAllIndex(text, -1), []int{len(text), len(text)}) {
		if one := text[start:next[0]]; len(bytes.TrimSpace(one)) > 0 {
			all = append(all, document{line, one})
		}
		line += bytes.Count(text[start:next[1]], []byte("\n"))
		start = next[1]
	}
	return all
}

var lineNumber = regexp.MustCompile(`\bline (\d+)`)

// yamlProblem formats an error of the YAML parser as one line, with line numbers relative to the file instead of the
// document.
func yamlProblem(err error, first int) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:")
	text = strings.Join(strings.Fields(text), " ")
	return lineNumber.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(s, "line "))
		return fmt.Sprintf("line %d", n+first-1)
	})
}
