package compose

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Limits of variables.
const (
	maxExpanded = 4 << 20 // bytes of all expanded texts of a project
	maxNested   = 20      // depth of defaults inside defaults
)

// variables are the variables of the environment and of .env.
type variables struct {
	lookupEnv func(string) (string, bool)
	file      map[string]string
	expanded  int      // bytes so far
	warnings  []string // about unset variables
}

// newVariables reads .env. Variables of the environment have precedence.
func newVariables(text []byte, lookupEnv func(string) (string, bool)) (*variables, error) {
	v := &variables{lookupEnv: lookupEnv, file: map[string]string{}}
	rest := strings.TrimPrefix(string(text), "\ufeff")
	for {
		rest = strings.TrimLeft(rest, " \t\r\n\v\f")
		if rest == "" {
			v.warnings = nil
			return v, nil
		}
		line, after, _ := strings.Cut(rest, "\n")
		match := assignment.FindStringSubmatch(line)
		switch {
		case line[0] == '#', match == nil && nameOnly.MatchString(line): // a name without a value refers to the environment
			rest = after
			continue
		case match == nil:
			return nil, fmt.Errorf("%.40q is no line NAME=value", line)
		}
		value, more, err := v.value(rest[len(match[0]):])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", match[1], err)
		}
		v.file[match[1]], rest = value, more
	}
}

var (
	assignment = regexp.MustCompile(`^(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*[=:][ \t\r\v\f]*`)
	nameOnly   = regexp.MustCompile(`^(?:export\s+)?[A-Za-z_][A-Za-z0-9_.]*\s*$`)
	comment    = regexp.MustCompile(`(^|\s)#.*`)
	escapes    = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\"`, `"`, `\\`, `\`, `\$`, "$$")
)

// value parses the value at the start of a text, and returns the rest of the text.
func (v *variables) value(text string) (value, rest string, err error) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		value, rest, _ = strings.Cut(text, "\n")
		value, err = v.lenient(strings.TrimSpace(comment.ReplaceAllString(value, "")))
		return value, rest, err
	}
	quote := text[0]
	for end := 1; end < len(text); end++ {
		switch text[end] {
		case '\\':
			if quote == '"' {
				end++
			}
		case quote:
			value, rest = text[1:end], text[end+1:]
			if _, rest, _ = strings.Cut(rest, "\n"); quote == '"' {
				value, err = v.lenient(escapes.Replace(value))
			}
			return value, rest, err
		}
	}
	return "", "", fmt.Errorf("the quote %c has no end", quote)
}

// lenient expands a value of .env. A value that cannot be expanded is returned unchanged: it may be a password.
func (v *variables) lenient(text string) (string, error) {
	value, err := v.expand(text)
	if err != nil && !errors.Is(err, errTooLong) {
		return text, nil
	}
	return value, err
}

// lookup returns the value of a variable.
func (v *variables) lookup(name string) (string, bool) {
	if value, isSet := v.lookupEnv(name); isSet {
		return value, true
	}
	value, isSet := v.file[name]
	return value, isSet
}

// expand expands variables in a text as docker compose does: $NAME, ${NAME}, with :-, -, :?, ?, :+ or +, and $$ for a dollar
// sign.
func (v *variables) expand(text string) (string, error) { return v.nested(text, 0) }

func (v *variables) nested(text string, depth int) (string, error) {
	if depth > maxNested {
		return "", fmt.Errorf("it has more than %d variables in variables", maxNested)
	}
	var s strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		s.WriteString(before)
		if !found {
			break
		}
		value, used, err := v.reference(after, depth)
		if err != nil {
			return "", err
		}
		s.WriteString(value)
		if s.Len() > maxExpanded {
			return "", errTooLong
		}
		text = after[used:]
	}
	if v.expanded += s.Len(); v.expanded > maxExpanded {
		return "", errTooLong
	}
	return s.String(), nil
}

var errTooLong = fmt.Errorf("the texts with variables are longer than %d bytes", maxExpanded)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// reference expands the reference at the start of a text, after its $. used is the reference's length.
func (v *variables) reference(text string, depth int) (value string, used int, err error) {
	if strings.HasPrefix(text, "$") {
		return "$", 1, nil
	}
	if name := variable.FindString(text); name != "" {
		value, err = v.operate(name, "", "", depth)
		return value, len(name), err
	}
	end := closing(text)
	if end < 0 {
		return "", 0, fmt.Errorf("%.40q has a $ before neither a name nor {name}; write $$ for a dollar sign", "$"+text)
	}
	inside := text[1:end]
	name := variable.FindString(inside)
	rest := inside[len(name):]
	operator := operators[slices.IndexFunc(operators, func(o string) bool { return strings.HasPrefix(rest, o) })]
	if name == "" || operator == "" && rest != "" {
		return "", 0, fmt.Errorf("%.40q is no variable; write ${NAME}, or ${NAME:-default}", "$"+text[:end+1])
	}
	value, err = v.operate(name, operator, rest[len(operator):], depth)
	return value, end + 1, err
}

// operators are the operators between a name and its argument. The last one, "", stands for no operator.
var operators = []string{":-", ":?", ":+", "-", "?", "+", ""}

// operate returns the value of a variable after applying an operator.
func (v *variables) operate(name, operator, argument string, depth int) (string, error) {
	value, isSet := v.lookup(name)
	if strings.HasPrefix(operator, ":") && value == "" {
		isSet = false
	}
	switch strings.TrimPrefix(operator, ":") {
	case "-":
		if isSet {
			return value, nil
		}
		return v.nested(argument, depth+1)
	case "+":
		if !isSet {
			return "", nil
		}
		return v.nested(argument, depth+1)
	case "?":
		if isSet {
			return value, nil
		}
		message, err := v.nested(argument, depth+1)
		return "", errors.Join(fmt.Errorf("variable %s is required: %s", name, message), err)
	}
	if warning := fmt.Sprintf("Variable %s is not set, and is empty.", name); !isSet && !slices.Contains(v.warnings, warning) {
		v.warnings = append(v.warnings, warning)
	}
	return value, nil
}

// closing returns the index of the brace that closes the one at the start of a text, or -1.
func closing(text string) int {
	if !strings.HasPrefix(text, "{") {
		return -1
	}
	for i, open := 1, 1; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "${"):
			open++
			i++
		case text[i] == '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}
