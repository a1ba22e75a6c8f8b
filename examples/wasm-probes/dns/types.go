package main

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// recordType describes the text format of a record type: its fields in order, and an example.
type recordType struct {
	number  dnsmessage.Type
	fields  string // 8, 16 and 32 are numbers of that many bits; tag, hex, base64 and text extend to the end of the data
	example string
}

// types maps names to record types (IANA's registry, Resource Record (RR) TYPEs). Other types can be queried by
// number.
var types = sync.OnceValue(func() map[string]recordType {
	return map[string]recordType{
		"A":       {dnsmessage.TypeA, "ip4", "192.0.2.7"},
		"AAAA":    {dnsmessage.TypeAAAA, "ip6", "2001:db8::7"},
		"ANY":     {dnsmessage.TypeALL, "", "MX 10 mail.example.org"},
		"CAA":     {257, "8 tag text", `0 issue "ca.example.org"`},
		"CDNSKEY": {60, "16 8 8 base64", "257 3 13 mdsswUyr…"},
		"CDS":     {59, "16 8 8 hex", "60485 13 2 d4b7d520…"},
		"CNAME":   {dnsmessage.TypeCNAME, "name", "www.example.org"},
		"DNSKEY":  {48, "16 8 8 base64", "257 3 13 mdsswUyr…"},
		"DS":      {43, "16 8 8 hex", "60485 13 2 d4b7d520…"},
		"HINFO":   {dnsmessage.TypeHINFO, "string string", `"RFC8482" ""`},
		"HTTPS":   {dnsmessage.TypeHTTPS, "16 name params", "1 . alpn=h2,h3"},
		"MX":      {dnsmessage.TypeMX, "16 name", "10 mail.example.org"},
		"NS":      {dnsmessage.TypeNS, "name", "ns1.example.org"},
		"PTR":     {dnsmessage.TypePTR, "name", "www.example.org"},
		"SOA":     {dnsmessage.TypeSOA, "name name 32 32 32 32 32", "ns1.example.org root.example.org 7 3600 600 86400 60"},
		"SRV":     {dnsmessage.TypeSRV, "16 16 16 name", "1 2 5060 sip.example.org"},
		"SSHFP":   {44, "8 8 hex", "4 2 123456789abcdef6…"},
		"SVCB":    {dnsmessage.TypeSVCB, "16 name params", "1 dns.example.org alpn=dot"},
		"TLSA":    {52, "8 8 8 hex", "3 1 1 d2abde24…"},
		"TXT":     {dnsmessage.TypeTXT, "", "v=spf1 -all"},
	}
})

// byNumber is the prefix of types without a name: TYPE1 and so on. Their records are written as \# 4 c0000207 (RFC
// 3597, section 5).
const byNumber = "TYPE"

// typeOf returns the record type with a name such as CAA or TYPE257.
func typeOf(name string) (recordType, bool) {
	if known, ok := types()[name]; ok {
		return known, true
	}
	digits, ok := strings.CutPrefix(name, byNumber)
	n, err := strconv.ParseUint(digits, 10, 16)
	meta := n == 0 || n == uint64(dnsmessage.TypeOPT) || n >= 128 && n <= 255 // RFC 6895, section 3.1
	if !ok || err != nil || meta {
		return recordType{}, false
	}
	_, known := typeName(dnsmessage.Type(n))
	return known, true
}

// typeName returns the name and the text format of a type.
func typeName(n dnsmessage.Type) (string, recordType) {
	for name, t := range types() {
		if t.number == n {
			return name, t
		}
	}
	return byNumber + strconv.Itoa(int(n)), recordType{n, "generic", `\# 4 c0000207`}
}

// record formats a record's data as in a zone file, with names without the final dot.
func record(body dnsmessage.ResourceBody) (string, error) {
	switch r := body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(r.A).String(), nil
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(r.AAAA).String(), nil
	case *dnsmessage.CNAMEResource:
		return host(r.CNAME), nil
	case *dnsmessage.MXResource:
		return fmt.Sprintf("%d %s", r.Pref, host(r.MX)), nil
	case *dnsmessage.NSResource:
		return host(r.NS), nil
	case *dnsmessage.PTRResource:
		return host(r.PTR), nil
	case *dnsmessage.SOAResource:
		return fmt.Sprintf("%s %s %d %d %d %d %d", host(r.NS), host(r.MBox), r.Serial, r.Refresh, r.Retry, r.Expire, r.MinTTL), nil
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, host(r.Target)), nil
	case *dnsmessage.TXTResource:
		return strings.Join(r.TXT, ""), nil
	case *dnsmessage.SVCBResource:
		return service(r)
	case *dnsmessage.HTTPSResource:
		return service(&r.SVCBResource)
	case *dnsmessage.UnknownResource:
		return unparsed(r)
	}
	return "", fmt.Errorf("a record has an unexpected type, %T", body)
}

// unparsed formats the data of a record that dnsmessage does not parse.
func unparsed(r *dnsmessage.UnknownResource) (string, error) {
	name, t := typeName(r.Type)
	var words []string
	rest := r.Data
	for _, field := range strings.Fields(t.fields) {
		word, n := fieldOf(field, rest)
		if n < 0 {
			return "", fmt.Errorf("a record of type %s with %d bytes is malformed", name, len(r.Data))
		}
		words, rest = append(words, word), rest[n:]
	}
	if len(rest) > 0 {
		return "", fmt.Errorf("a record of type %s with %d bytes is malformed", name, len(r.Data))
	}
	return strings.Join(words, " "), nil
}

// fieldOf formats the field at the start of b. It returns the length of the field, or a negative number if b is
// too short.
func fieldOf(field string, b []byte) (string, int) {
	switch field {
	case "hex":
		return hex.EncodeToString(b), len(b)
	case "base64":
		return base64.StdEncoding.EncodeToString(b), len(b)
	case "text":
		return quote(string(b)), len(b)
	case "generic":
		return generic(b), len(b)
	case "8", "16":
		bits, _ := strconv.Atoi(field)
		if len(b) < bits/8 {
			return "", -1
		}
		var number [2]byte
		copy(number[2-bits/8:], b)
		return strconv.Itoa(int(binary.BigEndian.Uint16(number[:]))), bits / 8
	}
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", -1
	}
	s := string(b[1 : 1+int(b[0])]) // int, because 1+255 overflows a byte
	if field == "tag" {
		if s == "" || escape(s) != s {
			return "", -1
		}
		return strings.ToLower(s), 1 + len(s)
	}
	return quote(s), 1 + len(s)
}

func generic(b []byte) string { return strings.TrimSpace(fmt.Sprintf(`\# %d %x`, len(b), b)) }

// quote formats a quoted string as in a zone file (RFC 1035, section 5.1).
func quote(s string) string { return `"` + strings.ReplaceAll(escape(s), `\032`, " ") + `"` }

// escape formats an unquoted string as in a zone file.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c <= ' ' || c > '~':
			fmt.Fprintf(&b, `\%03d`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// host returns a domain name in canonical form, for comparisons.
func host(n dnsmessage.Name) string { return canonical(n.String()) }

func canonical(name string) string {
	return cmp.Or(strings.ToLower(escape(strings.TrimSuffix(name, "."))), ".")
}

// normal converts an expected record to the format of record.
func normal(text string, kind dnsmessage.Type) (string, error) {
	name, t := typeName(kind)
	switch kind {
	case dnsmessage.TypeTXT:
		return text, nil
	case dnsmessage.TypeALL:
		first, rest, _ := strings.Cut(strings.TrimLeft(text, " "), " ")
		of, ok := typeOf(first)
		if !ok || of.number == dnsmessage.TypeALL {
			return "", fmt.Errorf("write the type of the record first, as in %s", t.example)
		}
		data, err := normal(rest, of.number)
		name, _ = typeName(of.number)
		return name + " " + data, err
	}
	words, err := split(text)
	var all []string
	for _, field := range strings.Fields(t.fields) {
		var word string
		if err == nil {
			word, words, err = normalField(field, words)
		}
		all = append(all, word)
	}
	if err != nil || len(words) > 0 {
		return "", fmt.Errorf("a record of type %s is written as %s", name, t.example)
	}
	return strings.TrimSpace(strings.Join(all, " ")), nil
}

// normalField formats the field that starts at the first word, and returns the remaining words.
func normalField(field string, words []string) (string, []string, error) {
	var err error
	all := strings.Join(words, "")
	switch field {
	case "params":
		text, err := params(words)
		return text, nil, err
	case "hex":
		_, err = hex.DecodeString(all)
		return strings.ToLower(all), nil, err
	case "base64":
		_, err = base64.StdEncoding.DecodeString(all)
		return all, nil, err
	case "generic":
		if len(words) < 2 || words[0] != "#" {
			return "", nil, errField
		}
		b, err := hex.DecodeString(strings.Join(words[2:], ""))
		if words[1] != strconv.Itoa(len(b)) {
			return "", nil, errField
		}
		return generic(b), nil, err
	}
	if len(words) == 0 {
		return "", nil, errField
	}
	word, rest := words[0], words[1:]
	switch field {
	case "ip4", "ip6":
		ip, err := netip.ParseAddr(word)
		if err != nil || ip.Is4() != (field == "ip4") || ip.Zone() != "" {
			return "", nil, errField
		}
		return ip.String(), rest, nil
	case "name":
		name, err := ascii(word)
		return canonical(name), rest, err
	case "tag":
		return strings.ToLower(word), rest, nil
	case "text", "string":
		return quote(word), rest, nil
	}
	bits, _ := strconv.Atoi(field)
	n, err := strconv.ParseUint(word, 10, bits)
	return strconv.FormatUint(n, 10), rest, err
}

var errField = errors.New("no such field")

// split splits the text of a record into words, and removes quotes and escapes.
func split(text string) ([]string, error) {
	var words []string
	var word []byte
	inWord, quoted := false, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted, inWord = !quoted, true
		case (c == ' ' || c == '\t') && !quoted:
			if inWord {
				words, word = append(words, string(word)), nil
			}
			inWord = false
		case c == '\\':
			b, n := unescape(text[i+1:])
			if n == 0 {
				return nil, errField
			}
			word, inWord = append(word, b), true
			i += n
		default:
			word, inWord = append(word, c), true
		}
	}
	if quoted {
		return nil, errField
	}
	if inWord {
		words = append(words, string(word))
	}
	return words, nil
}

// unescape decodes the escape sequence after a backslash. It returns the byte and the length of the
// sequence, or 0 if the sequence is invalid.
func unescape(s string) (b byte, length int) {
	if len(s) >= 3 {
		if n, err := strconv.ParseUint(s[:3], 10, 8); err == nil {
			return byte(n), 3
		}
	}
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return 0, 0
	}
	return s[0], 1
}
