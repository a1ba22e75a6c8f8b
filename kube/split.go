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

// split splits a YAML file at its document markers: lines that are --- or start with
// --- and white space. Empty documents are omitted.
func split(text []byte) []document {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	var all []document
	current := document{line: 1}
	line := 0
	for part := range bytes.Lines(text) {
		line++
		if isMarker(part) {
			all = appendText(all, current)
			part = part[len("---"):]
			current = document{line: line}
			if len(bytes.TrimSpace(part)) == 0 {
				current.line, part = line+1, nil
			}
		}
		current.text = append(current.text, part...)
	}
	return appendText(all, current)
}

func isMarker(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

func appendText(all []document, d document) []document {
	if len(bytes.TrimSpace(d.text)) == 0 {
		return all
	}
	return append(all, d)
}

var lineNumber = regexp.MustCompile(`\bline (\d+)`)

// yamlProblem returns an error of the YAML parser in one line, with line numbers of
// the file instead of the document.
func yamlProblem(err error, first int) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:")
	text = strings.Join(strings.Fields(text), " ")
	return lineNumber.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(s, "line "))
		return fmt.Sprintf("line %d", n+first-1)
	})
}
