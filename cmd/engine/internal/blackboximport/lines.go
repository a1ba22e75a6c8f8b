package blackboximport

import (
	"regexp/syntax"
	"slices"
	"strings"
)

// ofLine converts an expression that matches a line without its CR LF, as the prober tcp reads lines, to an expression that
// matches a stream. Since the handler tcp matches all data received so far, an expression that depends on the end of a line
// must wait for that end.
func ofLine(text string) (string, error) {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return "", err
	}
	last := len(re.Sub) - 1
	switch isOpen := dependsOnEnd(re); {
	case isOpen && re.Op == syntax.OpConcat && isEnd(re.Sub[last]) && !slices.ContainsFunc(re.Sub[:last], dependsOnEnd):
		re.Sub[last] = &syntax.Regexp{Op: syntax.OpEmptyMatch}
		re = inLine(re)
		re.Sub[last] = lineBreak
	case isOpen:
		re = &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{inLine(re), restOfLine}}
	default:
		re = inLine(re)
	}
	for _, plain := range []string{"(?m)" + text, "(?m)" + strings.TrimSuffix(text, "$") + `\r?\n`} {
		if same, err := syntax.Parse(plain, syntax.Perl); err == nil && same.String() == re.String() {
			return plain, nil
		}
	}
	return re.String(), nil
}

// Parts of stream expressions.
var (
	lineEnd    = parsed(`\r?(?m:$)`)
	lineBreak  = parsed(`\r?\n`)
	restOfLine = parsed(`[^\n]*\n`)
)

func parsed(text string) *syntax.Regexp {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		panic(err) // unreachable: the text is a constant
	}
	return re
}

func isEnd(re *syntax.Regexp) bool { return re.Op == syntax.OpEndText || re.Op == syntax.OpEndLine }

// dependsOnEnd reports whether an expression may match the beginning of a line although it does not match the whole line.
func dependsOnEnd(re *syntax.Regexp) bool {
	return isEnd(re) || re.Op == syntax.OpWordBoundary || re.Op == syntax.OpNoWordBoundary || slices.ContainsFunc(re.Sub, dependsOnEnd)
}

// inLine rewrites an expression so that it matches only within a line of a stream, without CR and LF.
func inLine(re *syntax.Regexp) *syntax.Regexp {
	switch re.Op {
	case syntax.OpBeginText:
		return &syntax.Regexp{Op: syntax.OpBeginLine}
	case syntax.OpEndText, syntax.OpEndLine:
		return lineEnd
	case syntax.OpStar:
		if inner := re.Sub[0].Op; inner == syntax.OpAnyChar || inner == syntax.OpAnyCharNotNL { // a CR at the end makes no difference
			re.Sub[0] = &syntax.Regexp{Op: syntax.OpAnyCharNotNL}
			return re
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return parsed(`[^\r\n]`)
	case syntax.OpCharClass:
		return withoutBreaks(re)
	case syntax.OpLiteral:
		if slices.ContainsFunc(re.Rune, isBreak) {
			return &syntax.Regexp{Op: syntax.OpNoMatch} // a line has no breaks
		}
	}
	for i, inner := range re.Sub {
		if isFollowed := re.Op == syntax.OpConcat && i+1 < len(re.Sub) && re.Sub[i+1].Op == syntax.OpLiteral; !isFollowed || !isDot(inner) {
			re.Sub[i] = inLine(inner)
		}
	}
	return re
}

// isDot reports whether an expression is . or .+. Before another character, neither matches the CR at the end of a line.
func isDot(re *syntax.Regexp) bool {
	const dot = syntax.OpAnyCharNotNL
	return re.Op == dot || re.Op == syntax.OpPlus && re.Sub[0].Op == dot
}

func isBreak(r rune) bool { return r == '\r' || r == '\n' }

// withoutBreaks removes CR and LF from a character class.
func withoutBreaks(class *syntax.Regexp) *syntax.Regexp {
	var ranges []rune
	for i := 0; i < len(class.Rune); i += 2 {
		from, to := class.Rune[i], class.Rune[i+1]
		for _, b := range "\n\r" {
			if from <= b && b <= to {
				if from < b {
					ranges = append(ranges, from, b-1)
				}
				from = b + 1
			}
		}
		if from <= to {
			ranges = append(ranges, from, to)
		}
	}
	if len(ranges) == 0 {
		return &syntax.Regexp{Op: syntax.OpNoMatch}
	}
	return &syntax.Regexp{Op: syntax.OpCharClass, Flags: class.Flags, Rune: ranges}
}
