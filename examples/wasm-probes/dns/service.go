package main

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// paramNames are the keys of HTTPS and SVCB records (IANA's registry, Service Parameter Keys). Other keys are written
// key9 and so on.
var paramNames = []string{"mandatory", "alpn", "no-default-alpn", "port", "ipv4hint", "ech", "ipv6hint", "dohpath", "ohttp"}

func paramName(key dnsmessage.SVCParamKey) string {
	if int(key) < len(paramNames) {
		return paramNames[key]
	}
	return "key" + strconv.Itoa(int(key))
}

func paramKey(name string) (dnsmessage.SVCParamKey, error) {
	if i := slices.Index(paramNames, name); i >= 0 {
		return dnsmessage.SVCParamKey(i), nil
	}
	digits, ok := strings.CutPrefix(name, "key")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !ok || err != nil {
		return 0, errField
	}
	return dnsmessage.SVCParamKey(n), nil
}

// service formats an HTTPS or SVCB record (RFC 9460, section 2.1).
func service(r *dnsmessage.SVCBResource) (string, error) {
	text := fmt.Sprintf("%d %s", r.Priority, host(r.Target))
	for _, p := range r.Params {
		value, ok := paramValue(p)
		if !ok {
			return "", fmt.Errorf("invalid value of %s, %d bytes, in an HTTPS or SVCB record", paramName(p.Key), len(p.Value))
		}
		text += " " + param(p.Key, value)
	}
	return text, nil
}

// param formats a parameter, in quotes if necessary.
func param(key dnsmessage.SVCParamKey, value string) string {
	if value == "" {
		return paramName(key)
	}
	if escape(value) != value {
		value = quote(value)
	}
	return paramName(key) + "=" + value
}

// paramValue formats the value of a parameter.
func paramValue(p dnsmessage.SVCParam) (value string, ok bool) {
	switch p.Key {
	case dnsmessage.SVCParamMandatory:
		return list(p.Value, 2, func(b []byte) string { return paramName(dnsmessage.SVCParamKey(binary.BigEndian.Uint16(b))) })
	case dnsmessage.SVCParamIPv4Hint:
		return list(p.Value, 4, addressText)
	case dnsmessage.SVCParamIPv6Hint:
		return list(p.Value, 16, addressText)
	case dnsmessage.SVCParamALPN:
		return protocols(p.Value)
	case dnsmessage.SVCParamNoDefaultALPN, dnsmessage.SVCParamOHTTP:
		return "", len(p.Value) == 0
	case dnsmessage.SVCParamPort:
		if len(p.Value) != 2 {
			return "", false
		}
		return strconv.Itoa(int(binary.BigEndian.Uint16(p.Value))), true
	case dnsmessage.SVCParamECH:
		return base64.StdEncoding.EncodeToString(p.Value), true
	}
	return string(p.Value), true
}

// list formats a list of values of size bytes each.
func list(b []byte, size int, format func([]byte) string) (string, bool) {
	var all []string
	for one := range slices.Chunk(b, size) {
		if len(one) < size {
			return "", false
		}
		all = append(all, format(one))
	}
	return strings.Join(all, ","), len(all) > 0
}

func addressText(b []byte) string {
	ip, _ := netip.AddrFromSlice(b) // b has 4 or 16 bytes
	return ip.String()
}

// protocols formats a list of length-prefixed protocol names. A comma or backslash in a name is escaped.
func protocols(b []byte) (string, bool) {
	var all []string
	for len(b) > 0 {
		n := 1 + int(b[0])
		if n == 1 || len(b) < n {
			return "", false
		}
		all = append(all, strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(string(b[1:n])))
		b = b[n:]
	}
	return strings.Join(all, ","), len(all) > 0
}

// params formats expected parameters, which may be given in any order.
func params(words []string) (string, error) {
	values := map[dnsmessage.SVCParamKey]string{}
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		key, err := paramKey(strings.ToLower(name))
		if _, twice := values[key]; err != nil || twice {
			return "", errField
		}
		if values[key], err = expectedValue(key, value); err != nil {
			return "", err
		}
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, param(key, values[key]))
	}
	return strings.Join(all, " "), nil
}

// expectedValue converts an expected value to the format of paramValue.
func expectedValue(key dnsmessage.SVCParamKey, value string) (string, error) {
	all := strings.Split(value, ",")
	switch key {
	case dnsmessage.SVCParamIPv4Hint, dnsmessage.SVCParamIPv6Hint:
		for i, text := range all {
			ip, err := netip.ParseAddr(text)
			if err != nil || ip.Is4() != (key == dnsmessage.SVCParamIPv4Hint) {
				return "", errField
			}
			all[i] = ip.String()
		}
	case dnsmessage.SVCParamMandatory: // in wire order
		slices.SortFunc(all, func(a, b string) int {
			keyA, _ := paramKey(a) // on an error, the returned key is compared
			keyB, _ := paramKey(b)
			return cmp.Compare(keyA, keyB)
		})
	case dnsmessage.SVCParamPort:
		n, err := strconv.ParseUint(value, 10, 16)
		return strconv.FormatUint(n, 10), err
	}
	return strings.Join(all, ","), nil
}
