package document

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// lineWidth is how long a list or an object may be in one line, in bytes.
const lineWidth = 80

// Expression returns the text of a value. For the types of value see Argument.
func Expression(value any) string {
	return string(hclwrite.Format(expression(value).Bytes()))
}

func expression(value any) hclwrite.Tokens {
	switch v := value.(type) {
	case string:
		return quoted(v)
	case bool:
		return hclwrite.TokensForValue(cty.BoolVal(v))
	case int:
		return hclwrite.TokensForValue(cty.NumberIntVal(int64(v)))
	case float64:
		return hclwrite.TokensForValue(cty.NumberFloatVal(v))
	case []string:
		return list(v)
	case map[string]string:
		values := make(map[string]any, len(v))
		for name, text := range v {
			values[name] = text
		}
		return object(values)
	case map[string]any:
		return object(v)
	}
	panic(fmt.Sprintf("document: a value has the type %T", value))
}

// quoted returns a string in quotes. Hclwrite escapes ${ and %{ by doubling their
// first character, which HCL does not undo after another one of the same.
func quoted(s string) hclwrite.Tokens {
	tokens := hclwrite.TokensForValue(cty.StringVal(s))
	for _, t := range tokens {
		t.Bytes = bytes.ReplaceAll(t.Bytes, []byte("$$${"), []byte(`$\u0024{`))
		t.Bytes = bytes.ReplaceAll(t.Bytes, []byte("%%%{"), []byte(`%\u0025{`))
	}
	return tokens
}

// list returns strings as a list, in one line if it is short. A script at its end is
// written as a heredoc.
func list(texts []string) hclwrite.Tokens {
	var elements []hclwrite.Tokens
	for _, s := range texts {
		elements = append(elements, quoted(s))
	}
	last := len(texts) - 1
	heredoc := last >= 0 && isScript(texts[last])
	if line := hclwrite.TokensForTuple(elements); !heredoc && len(line.Bytes()) <= lineWidth {
		return line
	}
	tokens := hclwrite.Tokens{token(hclsyntax.TokenOBrack, "["), newline()}
	for i, element := range elements {
		if i == last && heredoc { // no comma can follow
			text := strings.NewReplacer("${", "$${", "%{", "%%{").Replace(texts[i])
			tokens = append(tokens, token(hclsyntax.TokenOHeredoc, "<<EOT\n"), token(hclsyntax.TokenStringLit, text), token(hclsyntax.TokenCHeredoc, "EOT"), newline())
			break
		}
		tokens = append(append(tokens, element...), token(hclsyntax.TokenComma, ","), newline())
	}
	return append(tokens, token(hclsyntax.TokenCBrack, "]"))
}

// isScript reports whether a text has several lines and can stand in a heredoc.
func isScript(s string) bool {
	odd := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	return strings.Count(s, "\n") > 1 && strings.HasSuffix(s, "\n") && !strings.ContainsFunc(s, odd) &&
		!slices.ContainsFunc(strings.Split(s, "\n"), func(line string) bool { return strings.TrimSpace(line) == "EOT" }) &&
		!strings.Contains(s, "$${") && !strings.Contains(s, "%%{")
}

// object returns a map, sorted by key, in one line if it is short.
func object(values map[string]any) hclwrite.Tokens {
	var pairs []hclwrite.ObjectAttrTokens
	line := hclwrite.Tokens{token(hclsyntax.TokenOBrace, "{")}
	for i, name := range slices.Sorted(maps.Keys(values)) {
		pair := hclwrite.ObjectAttrTokens{Name: key(name), Value: expression(values[name])}
		pairs = append(pairs, pair)
		if i > 0 {
			line = append(line, token(hclsyntax.TokenComma, ","))
		}
		line = append(append(append(line, pair.Name...), token(hclsyntax.TokenEqual, "=")), pair.Value...)
	}
	line = append(line, token(hclsyntax.TokenCBrace, "}"))
	if text := hclwrite.Format(line.Bytes()); len(text) <= lineWidth && !bytes.Contains(text, []byte("\n")) {
		return line
	}
	return hclwrite.TokensForObject(pairs)
}

// key returns the key of an object. Words that HCL reserves there are quoted.
func key(name string) hclwrite.Tokens {
	if hclsyntax.ValidIdentifier(name) && !slices.Contains([]string{"true", "false", "null", "for"}, name) {
		return hclwrite.TokensForIdentifier(name)
	}
	return quoted(name)
}
