package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/probe"
)

// parseBody parses the argument body: JSON with variables in its texts. It returns nil for an empty text.
func parseBody(text string) (body any, err error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxBody {
		return nil, probe.FieldErrorf("body", "has %d bytes, at most %d are allowed", len(text), maxBody)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&body); err != nil {
		return nil, &probe.FieldError{Field: "body", Problem: fmt.Sprintf("is not JSON: %v", err), Hint: `write texts in quotes, also variables: { "text": "$(summary)" }`}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, probe.FieldErrorf("body", "has more than one JSON value")
	}
	return body, checkVariables(body)
}

// checkVariables returns an error for an unknown variable.
func checkVariables(v any) (err error) {
	_ = walk(v, func(text string) string {
		rest := strings.ReplaceAll(text, "$$", "")
		for {
			_, after, ok := strings.Cut(rest, "$(")
			name, more, closed := strings.Cut(after, ")")
			if !ok || !closed {
				return text
			}
			if rest = more; !slices.Contains(names, name) && (!strings.HasPrefix(name, "labels.") || name == "labels.") {
				err = &probe.FieldError{Field: "body", Problem: fmt.Sprintf("has the unknown variable $(%.80s)", name), Hint: "variables: " + strings.Join(names, ", ") + ", labels.NAME; $$ is one $"}
			}
		}
	})
	return err
}

// walk returns a JSON value in which a function has replaced each text.
func walk(v any, of func(string) string) any {
	switch v := v.(type) {
	case string:
		return of(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = walk(v[i], of)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for name := range v {
			all[name] = walk(v[name], of)
		}
		return all
	}
	return v
}

// names are the variables of a body.
var names = []string{"summary", "kind", "name", "status", "state", "severity", "reason", "detail", "probe", "startsAt", "endsAt", "link", "test"}

// render returns the body of a request.
func render(body any, n *notify.Notice) ([]byte, error) {
	if body == nil {
		return n.Body(), nil
	}
	values := n.Texts()
	for name, value := range n.Labels {
		values["labels."+name] = value
	}
	return json.Marshal(walk(body, func(text string) string {
		addMissingLabels(text, values)
		return command.Expand(text, values)
	}))
}

// addMissingLabels adds empty values for the labels to which a text refers and which the subject does not have.
func addMissingLabels(text string, values map[string]string) {
	for _, after := range strings.Split(text, "$(")[1:] {
		name, _, closed := strings.Cut(after, ")")
		if _, known := values[name]; closed && !known && strings.HasPrefix(name, "labels.") {
			values[name] = ""
		}
	}
}
