// Dns is a plugin that queries a DNS server over UDP, TCP or TLS and checks the response.
package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/idna"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port          string     `sonde:"port" default:"53" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Network       string     `sonde:"network" default:"udp" doc:"udp, with tcp for truncated answers; or tcp"`
	Name          string     `sonde:"name,required" doc:"the domain name to query"`
	Type          string     `sonde:"type" default:"A" doc:"the record type to query, such as AAAA, CAA, HTTPS, MX or ANY; TYPE99 for one without a name"`
	Rcode         string     `sonde:"rcode" default:"NOERROR" doc:"the response code that the server must return: NOERROR, NXDOMAIN, SERVFAIL, REFUSED, …"`
	Answers       []string   `sonde:"answers" doc:"records that the answer must have, each as text: 192.0.2.7, or 10 mail.example.org"`
	Least         int        `sonde:"least" default:"1" doc:"the minimum number of records of the type, if rcode is NOERROR"`
	Recursion     bool       `sonde:"recursion" default:"true" doc:"whether to ask for recursion; false asks for the server's own data"`
	Authoritative bool       `sonde:"authoritative" doc:"whether the answer must be authoritative"`
	TLS           *guest.TLS `sonde:"tls" doc:"query over TLS; needs network = \"tcp\""`

	question dnsmessage.Question
	rcode    dnsmessage.RCode
	answers  []string // in the format of record
}

// international converts non-ASCII names for lookups, in the same way as Sonde.
var international = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.StrictDomainName(false))

// ascii returns the ASCII form of a name.
func ascii(name string) (string, error) {
	if strings.IndexFunc(name, func(r rune) bool { return r > '~' }) < 0 {
		return name, nil
	}
	return international.ToASCII(name)
}

// Prepare encodes the question.
func (s *settings) Prepare() error {
	name, err := ascii(s.Name)
	if err != nil {
		return &guest.FieldError{Field: "name", Problem: fmt.Sprintf("is %.300q, which is no international name", s.Name)}
	}
	if !strings.HasSuffix(name, ".") {
		name += "."
	}
	kind, knownType := typeOf(s.Type)
	rcode, knownCode := rcodes()[s.Rcode]
	packed, err := packName(name)
	switch {
	case s.Name == "":
		return &guest.FieldError{Field: "name", Problem: `must not be empty; the root is "."`}
	case err != nil:
		return &guest.FieldError{Field: "name", Problem: fmt.Sprintf("is %.300q: %v", s.Name, err)}
	case !knownType:
		return &guest.FieldError{Field: "type", Problem: fmt.Sprintf("is %q; it must be one of %s, or a number such as TYPE99", s.Type, names(types()))}
	case !knownCode:
		return &guest.FieldError{Field: "rcode", Problem: fmt.Sprintf("is %q; it must be one of %s", s.Rcode, names(rcodes()))}
	case s.Network != "udp" && s.Network != "tcp":
		return &guest.FieldError{Field: "network", Problem: fmt.Sprintf("is %q; it must be udp or tcp", s.Network)}
	case s.TLS != nil && s.Network != "tcp":
		return &guest.FieldError{Field: "tls", Problem: `needs network = "tcp"`}
	case s.Least < 0:
		return &guest.FieldError{Field: "least", Problem: "must not be negative"}
	case len(s.Answers) > 0 && rcode != dnsmessage.RCodeSuccess:
		return &guest.FieldError{Field: "answers", Problem: "needs rcode = NOERROR"}
	}
	s.question = dnsmessage.Question{Name: packed, Type: kind.number, Class: dnsmessage.ClassINET}
	s.rcode = rcode
	return s.expect()
}

// expect parses the expected records.
func (s *settings) expect() error {
	for _, a := range s.Answers {
		text, err := normal(a, s.question.Type)
		if err != nil {
			return &guest.FieldError{Field: "answers", Problem: fmt.Sprintf("has %.300q: %v", a, err)}
		}
		s.answers = append(s.answers, text)
	}
	return nil
}

// attempt makes one query.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	a, err := ask(ctx, t, s.Network)
	if err == nil && a.truncated && s.Network == "udp" {
		a, err = ask(ctx, t, "tcp")
	}
	s.measure(t, a, err)
	if err != nil {
		return guest.FailWith("dns.protocol", err)
	}
	return s.judge(a)
}

// measure reports the numbers that blackbox_exporter has for a response; without a response they
// are 0.
func (s *settings) measure(t guest.Target[settings], a answer, err error) {
	succeeded := 0.0
	if err == nil {
		succeeded = 1
	}
	t.Measure("dns_query_succeeded", succeeded)
	t.Measure("dns_answer_rrs", float64(a.answers))
	t.Measure("dns_authority_rrs", float64(a.authorities))
	t.Measure("dns_additional_rrs", float64(a.additionals))
	if s.question.Type == dnsmessage.TypeSOA && err == nil {
		t.Measure("dns_serial", float64(a.serial))
	}
}

// judge returns the result of an attempt with a response.
func (s *settings) judge(a answer) guest.Result {
	summary := s.summary(a)
	switch {
	case a.rcode != s.rcode:
		return guest.Fail("dns.rcode", fmt.Sprintf("%s, want %s", summary, s.Rcode))
	case s.Authoritative && !a.authoritative:
		return guest.Fail("dns.authoritative", summary+", not authoritative")
	case s.rcode == dnsmessage.RCodeSuccess && len(a.records) < s.Least:
		return guest.Fail("dns.records", fmt.Sprintf("%s, want %d or more", summary, s.Least))
	}
	for i, want := range s.answers {
		if !slices.Contains(a.records, want) {
			return guest.Fail("dns.records", fmt.Sprintf("%s; %.300q is not among them", summary, s.Answers[i]))
		}
	}
	return guest.Succeed(summary)
}

// maxShown is the maximum number of records in the detail.
const maxShown = 10

// summary describes a response for the detail.
func (s *settings) summary(a answer) string {
	text := fmt.Sprintf("%s %s: %s", s.Name, s.Type, codeName(a.rcode))
	others := ""
	if a.others > 0 {
		others = fmt.Sprintf(", %d of another name or class", a.others)
	}
	if len(a.records) == 0 {
		return text + ", no records" + others
	}
	for _, r := range a.records[:min(len(a.records), maxShown)] {
		text += fmt.Sprintf(", %.300q", r)
	}
	if more := len(a.records) - maxShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + others
}

func init() {
	guest.Register(guest.Plugin{
		Name: "dns", Version: "1.0.0", Doc: "asks a DNS server a question and looks at the answer",
	}, attempt)
}

func main() { guest.Main() }
