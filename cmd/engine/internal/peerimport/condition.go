package peerimport

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var conditionParts = regexp.MustCompile(`^\s*(.+?)\s*(==|!=|<=|>=|<|>)\s*(.*?)\s*$`)

// conditions converts the conditions of the endpoint. It returns the response time above which an attempt fails, or "".
func (p *gatusProbe) conditions() (failAfter string) {
	for _, text := range p.endpoint.Conditions {
		parts := conditionParts.FindStringSubmatch(text)
		if parts == nil {
			p.lose("%q", text)
			continue
		}
		isKnown := false
		switch what, operator, value := parts[1], parts[2], parts[3]; {
		case what == "[STATUS]":
			isKnown = p.statusIs(operator, value)
		case what == "[CONNECTED]":
			isKnown = operator == "==" && value == "true"
		case what == "[RESPONSE_TIME]":
			n, err := strconv.Atoi(value)
			isKnown = err == nil && n > 0 && (operator == "<" || operator == "<=")
			failAfter = (time.Duration(n) * time.Millisecond).String()
		case what == "[CERTIFICATE_EXPIRATION]":
			_, err := time.ParseDuration(value)
			isKnown = err == nil && (operator == ">" || operator == ">=")
			p.minValidity = value
		case what == "[BODY]":
			isKnown = p.bodyIs(operator, value)
		case strings.HasPrefix(what, "[BODY].") || strings.HasPrefix(what, "[BODY]["):
			isKnown = operator == "==" && p.jsonIs(strings.TrimPrefix(strings.TrimPrefix(what, "[BODY]"), "."), value)
		}
		if !isKnown {
			p.lose("%q", text)
		}
	}
	return failAfter
}

// statusIs converts a condition on the status. Only one such condition is supported.
func (p *gatusProbe) statusIs(operator, value string) bool {
	wanted := []string{value}
	if list, isList := functionOf(value, "any"); isList {
		wanted = nil
		for one := range strings.SplitSeq(list, ",") {
			wanted = append(wanted, strings.TrimSpace(one))
		}
	}
	var accepted [600]bool
	for _, text := range wanted {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 999 {
			return false
		}
		for status := 100; status < len(accepted); status++ {
			accepted[status] = accepted[status] || compare(status, operator, n)
		}
	}
	if operator == "!=" && len(wanted) > 1 || p.hasStatus { // one condition is enough in almost all configurations
		return false
	}
	p.hasStatus, p.status = true, ranges(100, len(accepted), func(n int) bool { return accepted[n] })
	return len(p.status) > 0
}

func compare(a int, operator string, b int) bool {
	switch operator {
	case "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	}
	return a >= b
}

// ranges returns the wanted numbers from from to end, exclusive, in the format of lists of statuses: "204" and "200-399".
func ranges(from, end int, isWanted func(n int) bool) (all []string) {
	for ; from < end; from++ {
		to := from
		for to < end && isWanted(to) {
			to++
		}
		switch {
		case to == from+1:
			all = append(all, strconv.Itoa(from))
		case to > from:
			all = append(all, fmt.Sprintf("%d-%d", from, to-1))
		}
		from = to
	}
	return all
}

// functionOf returns the argument list of a function call such as any(200, 204).
func functionOf(value, name string) (inside string, ok bool) {
	inside, isFunction := strings.CutPrefix(value, name+"(")
	inside, isClosed := strings.CutSuffix(inside, ")")
	return inside, isFunction && isClosed
}

// bodyIs converts a condition on the whole body.
func (p *gatusProbe) bodyIs(operator, value string) bool {
	name := map[string]string{"==": "body_regex", "!=": "body_not_regex"}[operator]
	expression, isText := textExpression(value)
	if name == "" || !isText || p.asserted[name] != nil {
		return false
	}
	p.asserted[name] = expression
	return true
}

// jsonIs converts a condition on a value in a JSON body.
func (p *gatusProbe) jsonIs(path, value string) bool {
	name := "json_equals"
	if _, isPattern := functionOf(value, "pat"); isPattern {
		name = "json_regex"
		value, _ = textExpression(value)
	} else if strings.HasPrefix(value, "any(") || strings.HasPrefix(value, "[") {
		return false
	}
	values, _ := p.asserted[name].(map[string]string)
	if values == nil {
		values = map[string]string{}
		p.asserted[name] = values
	}
	values[path] = value
	return true
}

// textExpression returns the regular expression for a text, or for a pattern such as pat(*up*).
func textExpression(value string) (string, bool) {
	pattern, isPattern := functionOf(value, "pat")
	if !isPattern {
		return `^\s*` + regexp.QuoteMeta(value) + `\s*$`, !strings.HasPrefix(value, "any(") && !strings.HasPrefix(value, "[")
	}
	quoted := regexp.QuoteMeta(pattern)
	quoted = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted)
	if strings.ContainsAny(pattern, `[]\`) {
		return "", false
	}
	return "(?s)^" + quoted + "$", true
}
