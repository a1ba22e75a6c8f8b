package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// rcodes maps names to response codes (IANA's registry, DNS RCODEs; those above 15 need EDNS, which
// is not used).
var rcodes = sync.OnceValue(func() map[string]dnsmessage.RCode {
	return map[string]dnsmessage.RCode{
		"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5,
		"YXDOMAIN": 6, "YXRRSET": 7, "NXRRSET": 8, "NOTAUTH": 9, "NOTZONE": 10,
	}
})

// names returns the keys of a table, sorted and separated by commas.
func names[T any](m map[string]T) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

func codeName(code dnsmessage.RCode) string {
	for name, c := range rcodes() {
		if c == code {
			return name
		}
	}
	return fmt.Sprintf("code %d", code)
}

// packName converts a domain name that ends with a dot. It returns an error if the name exceeds 255
// bytes on the wire, or has a label that is not of 1 to 63 bytes (RFC 1035, section 2.3.4).
func packName(name string) (dnsmessage.Name, error) {
	if len(name) > 254 {
		return dnsmessage.Name{}, errors.New("a name has at most 254 bytes")
	}
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	for _, label := range labels {
		if (label == "" && name != ".") || len(label) > 63 {
			return dnsmessage.Name{}, errors.New("its parts between the dots have 1 to 63 bytes")
		}
	}
	return dnsmessage.NewName(name)
}
