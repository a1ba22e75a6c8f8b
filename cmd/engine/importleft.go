package main

import (
	"fmt"
	"strings"
)

// probeWords are the fields of a container that make its probes. One that is misspelt
// would leave a probe out that somebody counts on.
var probeWords = []string{
	"livenessProbe", "readinessProbe", "startupProbe", "httpGet", "tcpSocket", "command", "httpHeaders", "containerPort",
	"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds",
}

// maxTypos is how many characters of such a word may be wrong.
const maxTypos = 2

// leftOut lists fields that are not carried over, and says of which it is likely that
// they are misspelt.
func leftOut(fields []string) string {
	texts := make([]string, len(fields))
	for i, field := range fields {
		texts[i] = field
		name := field[strings.LastIndexByte(field, '.')+1:]
		for _, word := range probeWords {
			if distance(name, word) <= maxTypos {
				texts[i] = fmt.Sprintf("%s (did you mean %s?)", field, word)
			}
		}
	}
	return strings.Join(texts, ", ")
}
