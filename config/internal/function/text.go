package function

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

func texts() map[string]function.Function {
	return map[string]function.Function{
		"base64decode": text(decodeBase64),
		"base64encode": plain(func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }),
		"basename":     plain(filepath.Base),
		"dirname":      plain(filepath.Dir),
		"md5":          plain(func(s string) string { sum := md5.Sum([]byte(s)); return hex.EncodeToString(sum[:]) }),
		"sha256":       plain(func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) }),
		"urlencode":    plain(url.QueryEscape),
		"startswith":   compare("prefix", strings.HasPrefix),
		"endswith":     compare("suffix", strings.HasSuffix),
	}
}

func decodeBase64(s string) (string, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return "", errors.New("the text is not base64")
	}
	if !utf8.Valid(b) {
		return "", errors.New("the decoded bytes are not UTF-8 text")
	}
	return string(b), nil
}

// text returns a function with one string as its argument.
func text(f func(string) (string, error)) function.Function {
	return define(func(args []cty.Value) (cty.Value, error) {
		s, err := f(args[0].AsString())
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return cty.StringVal(s), nil
	}, cty.String, parameter("text", cty.String))
}

func plain(f func(string) string) function.Function {
	return text(func(s string) (string, error) { return f(s), nil })
}

func compare(name string, f func(s, part string) bool) function.Function {
	return define(func(args []cty.Value) (cty.Value, error) {
		return cty.BoolVal(f(args[0].AsString(), args[1].AsString())), nil
	}, cty.Bool, parameter("text", cty.String), parameter(name, cty.String))
}
