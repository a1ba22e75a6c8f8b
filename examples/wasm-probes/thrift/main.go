// Thrift is a plugin that calls a method without arguments of a Thrift service, in the
// binary protocol, framed or not, and checks its result.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port            string     `sonde:"port,required" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Method          string     `sonde:"method" default:"ping" doc:"the method to call; it has no arguments"`
	Service         string     `sonde:"service" doc:"the service that has the method, where one port serves several (TMultiplexedProcessor)"`
	Transport       string     `sonde:"transport" default:"framed" doc:"framed (TFramedTransport), or unframed (TBufferedTransport, TSocket)"`
	Expect          string     `sonde:"expect" doc:"the expected return value: a string, a whole number, true or false; default: any value, or none"`
	UnknownMethodOK bool       `sonde:"unknown_method_ok" doc:"whether the answer that the method does not exist is a success"`
	TLS             *guest.TLS `sonde:"tls" doc:"call over TLS"`
}

// maxName bounds the names of the method and of the service, in bytes.
const maxName = 255

// Prepare validates the settings.
func (s *settings) Prepare() error {
	switch {
	case s.Method == "":
		return &guest.FieldError{Field: "method", Problem: "must not be empty"}
	case len(s.Method) > maxName:
		return &guest.FieldError{Field: "method", Problem: fmt.Sprintf("is longer than %d bytes", maxName)}
	case len(s.Service) > maxName:
		return &guest.FieldError{Field: "service", Problem: fmt.Sprintf("is longer than %d bytes", maxName)}
	case s.Transport != "framed" && s.Transport != "unframed":
		return &guest.FieldError{Field: "transport", Problem: fmt.Sprintf("is %q; it must be framed or unframed", s.Transport)}
	}
	return nil
}

// attempt makes one call.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	c, err := t.DialPort(ctx, "tcp", s.Port, s.TLS)
	if err != nil {
		return guest.FailWith("thrift.dial", err)
	}
	defer c.Close()
	sequence := rand.Int32() // identifies the call
	if err := s.request(ctx, c, sequence); err != nil {
		return guest.FailWith("thrift.write", err)
	}
	reply, err := s.read(bufio.NewReader(c), sequence)
	if err != nil {
		return guest.FailWith("thrift.protocol", err)
	}
	return s.judge(reply)
}

// judge returns the result of an attempt with a reply.
func (s *settings) judge(r reply) guest.Result {
	switch {
	case r.failed && r.code == thrift.UNKNOWN_METHOD && s.UnknownMethodOK:
		return guest.Succeed(fmt.Sprintf("the server answers that it has no method %s", s.Method))
	case r.failed:
		return guest.Fail("thrift.exception", fmt.Sprintf("%s: %s: %s", s.Method, thrift.NewTApplicationException(r.code, ""), r.text))
	case r.declared != 0:
		return guest.Fail("thrift.exception", fmt.Sprintf("%s threw the exception that its definition has as number %d", s.Method, r.declared))
	case s.Expect != "" && r.value != s.Expect:
		return guest.Fail("thrift.expect", fmt.Sprintf("%s returned %s, want %q", s.Method, quoted(r), s.Expect))
	case !r.returned:
		return guest.Succeed(s.Method + " returned")
	}
	return guest.Succeed(fmt.Sprintf("%s returned %s", s.Method, quoted(r)))
}

// quoted returns the value of a reply for the detail.
func quoted(r reply) string {
	switch {
	case !r.returned:
		return "nothing"
	case r.value == "":
		return "a value"
	}
	return fmt.Sprintf("%.200q", r.value)
}

func init() {
	guest.Register(guest.Plugin{
		Name: "thrift", Version: "1.0.0", Doc: "calls a method of a Thrift service",
	}, attempt)
}

func main() { guest.Main() }
