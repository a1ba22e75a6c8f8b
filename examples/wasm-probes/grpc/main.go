// Grpc is a plugin that calls Check of grpc.health.v1, as the kubelet's grpc probes do. In
// addition it supports metadata and TLS.
package main

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"

	"github.com/sonde-probe/sonde/guest"
)

type settings struct {
	Port      string            `sonde:"port,required" doc:"a number from 1 to 65535, or the name of one of the target's ports"`
	Service   string            `sonde:"service" doc:"the service to check; default: the server as a whole"`
	Authority string            `sonde:"authority" doc:"the :authority of the call; default: the address that is dialled"`
	Metadata  map[string]string `sonde:"metadata,sensitive" doc:"metadata of the call; values of names that end in -bin are base64"`
	TLS       *guest.TLS        `sonde:"tls" doc:"call over TLS"`

	metadata []byte // encoded as header fields
	message  []byte // of the request
}

// maxService bounds the name of a service, in bytes.
const maxService = 1 << 10

// Prepare encodes the parts that are the same in each call.
func (s *settings) Prepare() error {
	if len(s.Service) > maxService {
		return &guest.FieldError{Field: "service", Problem: "is longer than " + strconv.Itoa(maxService) + " bytes"}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Metadata)) {
		value := s.Metadata[name]
		if problem := wrongField(name, value); problem != "" {
			return &guest.FieldError{Field: "metadata", Problem: problem}
		}
		s.metadata = appendField(s.metadata, name, value)
	}
	s.message = message(s.Service)
	return nil
}

// wrongField returns the problem with a metadata field, or "". The text never contains a part of
// the value.
func wrongField(name, value string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	switch {
	case name == "":
		return "has a field without a name"
	case strings.Trim(strings.ToLower(name), letters) == "" && strings.ToLower(name) != name:
		return "has the name " + strconv.Quote(name) + "; names are in lower case: write " + strings.ToLower(name)
	case strings.Trim(name, letters) != "":
		return "has the name " + strconv.Quote(name) + "; it must be of letters a-z, digits, -, _ and ."
	case strings.HasPrefix(name, "grpc-") || reserved[name]:
		return "must not have " + name + ", which the call sets itself"
	case strings.TrimRight(value, "\r\n") != value:
		return "has a line break at the end of " + name + ": if the value is from a file, write trimspace(file(…))"
	case strings.HasSuffix(name, "-bin"):
		return wrongBinary(name, value)
	}
	at := strings.IndexFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
	switch {
	case at < 0:
		return ""
	case value[at] < ' ' || value[at] == 0x7f:
		return "has a control character in " + name + ", as its byte " + strconv.Itoa(at+1)
	}
	return "has a character in " + name + " that is not ASCII, as its byte " + strconv.Itoa(at+1) + ": encode it, and name it " + name + "-bin"
}

// wrongBinary returns the problem with the value of a field whose name ends in -bin, or "". The value must be
// base64, with or without padding.
func wrongBinary(name, value string) string {
	if _, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "=")); err != nil {
		return "has no base64 in " + name + ", as names that end in -bin must: write base64encode(…)"
	}
	return ""
}

// reserved has the fields that HTTP/2 or gRPC sets.
var reserved = map[string]bool{
	"content-type": true, "te": true, "user-agent": true, "connection": true, "host": true,
	"content-length": true, "transfer-encoding": true, "upgrade": true, "keep-alive": true,
}

// attempt makes one call.
func attempt(ctx context.Context, t guest.Target[settings]) guest.Result {
	s := t.Settings
	c, err := t.DialPort(ctx, "tcp", s.Port, s.TLS, "h2")
	if err != nil {
		measure(t, answer{})
		return guest.FailWith("grpc.dial", err)
	}
	defer c.Close()
	authority := s.Authority
	if authority == "" {
		authority = t.HostPort(s.Port)
	}
	head := requestHead(ctx, s.TLS != nil, authority, s.metadata)
	answer, err := call(c, head, s.message)
	measure(t, answer)
	if err != nil {
		return guest.FailWith("grpc.protocol", err)
	}
	return answer.result()
}

// rehearse decodes a text during initialisation, so that the decoder's tree exists in attempts: building
// it takes three times as long as the rest of an attempt.
func rehearse() {
	if _, err := hpack.HuffmanDecodeToString(hpack.AppendHuffmanString(nil, "grpc")); err != nil {
		panic(err)
	}
}

func init() {
	rehearse()
	guest.Register(guest.Plugin{
		Name: "grpc", Version: "1.0.0", Doc: "asks a gRPC server for its health (grpc.health.v1)",
	}, attempt)
}

func main() { guest.Main() }
