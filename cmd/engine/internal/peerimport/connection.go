package peerimport

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/config/document"
)

// monitTimeout is monit's default timeout of a connection, in seconds.
const monitTimeout = 5

// connection writes the probe for the connection test in an "if failed" statement.
func (s *service) connection(d *draft, kind string, t statement) {
	end := len(t)
	for i, word := range t {
		if word.is("then") {
			end = i
		}
	}
	part := d.part()
	defer part.end()
	test := connection{statement: t[:end], d: part, isKnown: map[int]bool{0: true, 1: true}}
	failures := cycles(test.statement)
	test.know("for", "cycle", "cycles", "times", "seconds", "second")
	timeout, err := strconv.Atoi(test.value("timeout"))
	if err != nil || timeout < 1 {
		timeout = monitTimeout
	}
	body := s.probe(part, kind, "")
	test.handler(body)
	s.rule(body, failures, timeout)
	test.loseOthers()
}

// connection is a connection test.
type connection struct {
	statement
	d       *draft
	isKnown map[int]bool // indexes of the words that were understood
}

// value returns the word after one of several keywords.
func (c *connection) value(keywords ...string) string {
	for i, t := range c.statement {
		if t.is(keywords...) && i+1 < len(c.statement) {
			c.isKnown[i] = true
			if c.statement[i+1].is("=", "==") && i+2 < len(c.statement) {
				i++
				c.isKnown[i] = true
			}
			c.isKnown[i+1] = true
			return c.statement[i+1].text
		}
	}
	return ""
}

// flag reports whether the test contains one of several keywords.
func (c *connection) flag(keywords ...string) (given bool) {
	for i, t := range c.statement {
		if t.is(keywords...) {
			c.isKnown[i], given = true, true
		}
	}
	return given
}

// know marks keywords that do not concern the connection, and the numbers before "cycles" and "times", as understood.
func (c *connection) know(keywords ...string) {
	for i, t := range c.statement {
		_, err := strconv.Atoi(t.text)
		isCount := err == nil && i+1 < len(c.statement) && c.statement[i+1].is("cycle", "cycles", "times")
		if isCount || t.is(keywords...) {
			c.isKnown[i] = true
		}
	}
}

// loseOthers records the words that were not understood.
func (c *connection) loseOthers() {
	var others []string
	for i, t := range c.statement {
		if !c.isKnown[i] {
			others = append(others, t.text)
		}
	}
	if len(others) > 0 {
		c.d.lose("%s of %q", strings.Join(others, " "), c.text())
	}
}

// handler writes the handler block of the test.
func (c *connection) handler(probe *document.Body) {
	if c.flag("ping", "icmp", "ping4") {
		probe.Block("icmp")
		return
	}
	number, protocol := c.value("port"), strings.ToLower(c.value("protocol", "proto"))
	socket, isTLS := c.value("unixsocket", "unix"), c.flag("ssl", "tls")
	if kind := strings.ToLower(c.value("type")); kind == "tcpssl" {
		isTLS = true
	} else if kind == "udp" {
		c.d.lose("UDP")
	}
	if protocol == "https" {
		protocol, isTLS = "http", true
	}
	body := probe.Block(cmp.Or(map[string]string{"http": "http"}[protocol], "tcp"))
	if host := c.value("host"); host != "" {
		body.Set("host", host)
	}
	switch n, isPort := port(number); {
	case socket != "":
		body.Set("unix_socket", socket)
	case isPort:
		body.Set("port", strconv.Itoa(n))
	case number == "" && protocol == "http":
		body.Set("port", map[bool]string{false: "80", true: "443"}[isTLS])
	default:
		c.d.leaveOut("%q has no port", c.text())
	}
	switch protocol {
	case "http":
		c.http(body, isTLS)
	case "", "default", "tcp":
	case "ssh":
		body.Set("expect", "SSH-")
	case "smtp":
		body.Set("expect", "220")
	default:
		c.d.lose("the protocol %s; see the plugins of Sonde, and script", protocol)
	}
	c.tls(body, isTLS)
}

// tls writes the tls block, with the condition on the certificate.
func (c *connection) tls(body *document.Body, isTLS bool) {
	if days := c.validity(); days > 0 {
		body.BlockOf("tls", document.Argument{Name: "min_validity", Value: strconv.Itoa(24*days) + "h"})
	} else if isTLS {
		body.BlockOf("tls")
	}
}

// validity returns the number of days for which the certificate must be valid, as in "certificate valid for 30 days", or 0.
func (c *connection) validity() (days int) {
	for i, t := range c.statement {
		isKnown := t.is("certificate", "valid", "days") || t.is("for", ">") && c.statement[i-1].is("valid")
		n, err := strconv.Atoi(t.text)
		if isDays := err == nil && n > 0 && n < 10000 && i+1 < len(c.statement) && c.statement[i+1].is("days", "day"); isDays {
			days, isKnown = n, true
		}
		if isKnown {
			c.isKnown[i] = true
		}
	}
	return days
}

// http writes the request and the conditions on the response.
func (c *connection) http(body *document.Body, isTLS bool) {
	if isTLS {
		body.Set("scheme", "https")
	}
	if path := c.value("request"); path != "" {
		if _, err := url.ParseRequestURI(path); err != nil {
			c.d.leaveOut("the request %q is no path", path)
		}
		body.Set("path", path)
	}
	if method := c.value("method"); method != "" {
		body.Set("method", strings.ToUpper(method))
	}
	if name := c.value("hostheader"); name != "" {
		body.Set("headers", map[string]string{"Host": name})
	}
	if status := c.value("status"); status != "" {
		body.Set("status", []string{status})
	}
	if c.flag("content") {
		name, text := "body_regex", c.value("content")
		if text == "!=" {
			name, text = "body_not_regex", c.value("!=")
		}
		body.Set(name, text)
	}
}
