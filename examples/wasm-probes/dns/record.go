package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// types are the record types that can be queried, by name.
func types() map[string]dnsmessage.Type {
	return map[string]dnsmessage.Type{
		"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "MX": dnsmessage.TypeMX, "NS": dnsmessage.TypeNS,
		"PTR": dnsmessage.TypePTR, "SOA": dnsmessage.TypeSOA, "SRV": dnsmessage.TypeSRV, "TXT": dnsmessage.TypeTXT,
	}
}

// rcodes are the codes of an answer by name (IANA's registry, DNS RCODEs; those above
// 15 need EDNS, which is not used).
func rcodes() map[string]dnsmessage.RCode {
	return map[string]dnsmessage.RCode{
		"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5,
		"YXDOMAIN": 6, "YXRRSET": 7, "NXRRSET": 8, "NOTAUTH": 9, "NOTZONE": 10,
	}
}

// names lists the names of a table, sorted.
func names[T any](m map[string]T) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

func codeName(code dnsmessage.RCode) string {
	for name, c := range rcodes() {
		if c == code {
			return name
		}
	}
	return fmt.Sprintf("code %d", code)
}

// packName checks a domain name that ends with a dot: at most 255 bytes in labels of 1
// to 63 (RFC 1035, section 2.3.4).
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

// record formats a record's data in the usual way, names without the final dot. It returns
// false for an unknown record type.
func record(body dnsmessage.ResourceBody) (text string, ok bool) {
	switch r := body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(r.A).String(), true
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(r.AAAA).String(), true
	case *dnsmessage.CNAMEResource:
		return host(r.CNAME), true
	case *dnsmessage.MXResource:
		return fmt.Sprintf("%d %s", r.Pref, host(r.MX)), true
	case *dnsmessage.NSResource:
		return host(r.NS), true
	case *dnsmessage.PTRResource:
		return host(r.PTR), true
	case *dnsmessage.SOAResource:
		return fmt.Sprintf("%s %s %d %d %d %d %d", host(r.NS), host(r.MBox), r.Serial, r.Refresh, r.Retry, r.Expire, r.MinTTL), true
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("%d %d %d %s", r.Priority, r.Weight, r.Port, host(r.Target)), true
	case *dnsmessage.TXTResource:
		return strings.Join(r.TXT, ""), true
	}
	return "", false
}

// host returns a domain name in canonical form, for comparisons.
func host(n dnsmessage.Name) string { return strings.ToLower(strings.TrimSuffix(n.String(), ".")) }

// normal formats an expected record as record does.
func normal(text string, kind dnsmessage.Type) (string, error) {
	switch kind {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Is4() != (kind == dnsmessage.TypeA) || ip.Zone() != "" {
			return "", errors.New("not an address of this type")
		}
		return ip.String(), nil
	case dnsmessage.TypeTXT:
		return text, nil
	}
	words := strings.Fields(strings.ToLower(text))
	for i, w := range words {
		words[i] = strings.TrimSuffix(w, ".")
	}
	return strings.Join(words, " "), nil
}
