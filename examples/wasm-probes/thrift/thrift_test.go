package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// methods is a service that is served by Apache's own library.
type methods map[string]func(ctx context.Context, out thrift.TProtocol) error

func (m methods) Process(ctx context.Context, in, out thrift.TProtocol) (bool, thrift.TException) {
	name, _, sequence, err := in.ReadMessageBegin(ctx)
	if err != nil {
		return false, thrift.WrapTException(err)
	}
	err = errors.Join(in.Skip(ctx, thrift.STRUCT), in.ReadMessageEnd(ctx))
	kind, answer := thrift.REPLY, m[name]
	if answer == nil {
		kind, answer = thrift.EXCEPTION, func(ctx context.Context, out thrift.TProtocol) error {
			return thrift.NewTApplicationException(thrift.UNKNOWN_METHOD, "Unknown function "+name).Write(ctx, out)
		}
	}
	err = errors.Join(err, out.WriteMessageBegin(ctx, name, kind, sequence), answer(ctx, out), out.WriteMessageEnd(ctx), out.Flush(ctx))
	if err != nil {
		return false, thrift.WrapTException(err)
	}
	return true, nil
}

func (methods) ProcessorMap() map[string]thrift.TProcessorFunction  { return nil }
func (methods) AddToProcessorMap(string, thrift.TProcessorFunction) {}

// returns returns a method that returns one field.
func returns(id int16, kind thrift.TType, write func(context.Context, thrift.TProtocol) error) func(context.Context, thrift.TProtocol) error {
	return func(ctx context.Context, out thrift.TProtocol) error {
		return errors.Join(
			out.WriteStructBegin(ctx, "result"), out.WriteFieldBegin(ctx, "success", kind, id), write(ctx, out),
			out.WriteFieldEnd(ctx), out.WriteFieldStop(ctx), out.WriteStructEnd(ctx))
	}
}

// nothing is a method without a result.
func nothing(ctx context.Context, out thrift.TProtocol) error {
	return errors.Join(out.WriteStructBegin(ctx, "result"), out.WriteFieldStop(ctx), out.WriteStructEnd(ctx))
}

// nested returns a function that writes lists nested to a depth.
func nested(depth int) func(context.Context, thrift.TProtocol) error {
	return func(ctx context.Context, out thrift.TProtocol) error {
		for range depth {
			if err := out.WriteListBegin(ctx, thrift.LIST, 1); err != nil {
				return err
			}
		}
		return out.WriteListBegin(ctx, thrift.I32, 0)
	}
}

// manyKinds writes a struct with a value of each type that cannot be compared.
func manyKinds(ctx context.Context, out thrift.TProtocol) error {
	field := func(id int16, kind thrift.TType) error { return out.WriteFieldBegin(ctx, "", kind, id) }
	return errors.Join(
		field(1, thrift.BOOL), out.WriteBool(ctx, true),
		field(2, thrift.DOUBLE), out.WriteDouble(ctx, 1.5),
		field(3, thrift.I16), out.WriteI16(ctx, -1),
		field(4, thrift.UUID), out.WriteUUID(ctx, thrift.Tuuid{1}),
		field(5, thrift.MAP), out.WriteMapBegin(ctx, thrift.STRING, thrift.I64, 1), out.WriteString(ctx, "k"), out.WriteI64(ctx, 1),
		field(6, thrift.SET), out.WriteSetBegin(ctx, thrift.BYTE, 2), out.WriteByte(ctx, 1), out.WriteByte(ctx, 2),
		field(7, thrift.STRUCT), out.WriteFieldStop(ctx),
		out.WriteFieldStop(ctx),
	)
}

// service has a method for each kind of reply.
var service = methods{
	"ping":    nothing,
	"status":  returns(0, thrift.I32, func(ctx context.Context, out thrift.TProtocol) error { return out.WriteI32(ctx, 2) }),
	"owed":    returns(0, thrift.I64, func(ctx context.Context, out thrift.TProtocol) error { return out.WriteI64(ctx, -1<<40) }),
	"up":      returns(0, thrift.BOOL, func(ctx context.Context, out thrift.TProtocol) error { return out.WriteBool(ctx, true) }),
	"role":    returns(0, thrift.STRING, func(ctx context.Context, out thrift.TProtocol) error { return out.WriteString(ctx, "primary") }),
	"info":    returns(0, thrift.STRUCT, manyKinds),
	"throws":  returns(1, thrift.STRUCT, manyKinds),
	"deep":    returns(0, thrift.LIST, nested(100)),
	"shallow": returns(0, thrift.LIST, nested(10)),
	"long": returns(0, thrift.STRING, func(ctx context.Context, out thrift.TProtocol) error {
		return out.WriteString(ctx, strings.Repeat("x", 1<<20))
	}),
}

// start serves a service and returns the port.
func start(t *testing.T, p thrift.TProcessor, framed bool, secure *tls.Config) string {
	t.Helper()
	return lab.Serve(t, func(c net.Conn) {
		if secure != nil {
			c = tls.Server(c, secure)
		}
		serve(c, p, framed)
	})
}

// serve serves one connection with Apache's library.
func serve(c net.Conn, p thrift.TProcessor, framed bool) {
	var transport thrift.TTransport = thrift.NewTSocketFromConnConf(c, nil)
	if framed {
		transport = thrift.NewTFramedTransportConf(transport, nil)
	}
	protocol := thrift.NewTBinaryProtocolConf(transport, nil)
	for {
		if ok, err := p.Process(context.Background(), protocol, protocol); !ok || err != nil {
			return
		}
	}
}

// TestMain runs this program as a server if its first argument is serve.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go serve(c, service, true)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func realServer(t *testing.T, way lab.Way) {
	port := gatewaytest.FreePort(t)
	lab.Start(t, &lab.Server{Name: os.Args[0], Args: []string{"serve", port}}).Turns(t, way.Must(t, with(port, nil)))
}

// with returns settings as JSON.
func with(port string, more map[string]any) string {
	all := map[string]any{"port": port}
	for name, value := range more {
		all[name] = value
	}
	text, _ := json.Marshal(all) // never fails for strings and bools
	return string(text)
}

func TestThePlugin(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		t.Run("ItSaysWhatAMethodReturned", func(t *testing.T) { answers(t, way) })
		t.Run("ServerRestarts", func(t *testing.T) { realServer(t, way) })
		t.Run("ItFindsAServiceAmongSeveral", func(t *testing.T) { amongSeveral(t, way) })
		t.Run("ItCallsOverTLS", func(t *testing.T) { overTLS(t, way) })
		t.Run("ItNamesTheWrongTransport", func(t *testing.T) { wrongTransport(t, way) })
		t.Run("ItIsNotContentWithAConnection", func(t *testing.T) { onlyAccepts(t, way) })
		t.Run("WrongSettingsAreNamed", func(t *testing.T) { checksSettings(t, way) })
	})
}

type settingsOf = map[string]any

func answers(t *testing.T, way lab.Way) {
	framed, unframed := start(t, service, true, nil), start(t, service, false, nil)
	cases := []struct {
		name    string
		more    settingsOf
		outcome guest.Outcome
		reason  string
		detail  string
	}{
		{"nothing", settingsOf{}, guest.Success, "", "ping returned"},
		{"a number", settingsOf{"method": "status"}, guest.Success, "", `"2"`},
		{"the right number", settingsOf{"method": "status", "expect": "2"}, guest.Success, "", `"2"`},
		{"another number", settingsOf{"method": "status", "expect": "3"}, guest.Failure, "thrift.expect", `returned "2", want "3"`},
		{"a large number", settingsOf{"method": "owed", "expect": "-1099511627776"}, guest.Success, "", ""},
		{"a bool", settingsOf{"method": "up", "expect": "true"}, guest.Success, "", ""},
		{"a text", settingsOf{"method": "role", "expect": "primary"}, guest.Success, "", ""},
		{"another text", settingsOf{"method": "role", "expect": "replica"}, guest.Failure, "thrift.expect", "primary"},
		{"no value", settingsOf{"expect": "2"}, guest.Failure, "thrift.expect", "nothing"},
		{"a struct", settingsOf{"method": "info"}, guest.Success, "", "a value"},
		{"a declared exception", settingsOf{"method": "throws"}, guest.Failure, "thrift.exception", "number 1"},
		{"no such method", settingsOf{"method": "pong"}, guest.Failure, "thrift.exception", "unknown method: Unknown function pong"},
		{"no such method, which is enough", settingsOf{"method": "pong", "unknown_method_ok": true}, guest.Success, "", "no method pong"},
		{"values in values", settingsOf{"method": "shallow"}, guest.Success, "", ""},
		{"too many of them", settingsOf{"method": "deep"}, guest.Failure, "thrift.protocol", "Depth limit"},
		{"too long", settingsOf{"method": "long"}, guest.Failure, "thrift.protocol", ""},
	}
	for _, c := range cases {
		for transport, port := range map[string]string{"framed": framed, "unframed": unframed} {
			c.more["transport"] = transport
			got := lab.Expect(t, way.Must(t, with(port, c.more)), c.outcome, c.reason)
			if !strings.Contains(got.Detail, c.detail) {
				t.Errorf("%s, %s: the detail is %q, want %q", c.name, transport, got.Detail, c.detail)
			}
		}
	}
}

func amongSeveral(t *testing.T, way lab.Way) {
	several := thrift.NewTMultiplexedProcessor()
	several.RegisterProcessor("calculator", service)
	port := start(t, several, true, nil)
	lab.Expect(t, way.Must(t, with(port, settingsOf{"service": "calculator"})), guest.Success, "")
}

func overTLS(t *testing.T, way lab.Way) {
	certificate, authority := lab.Certificate(t)
	port := start(t, service, true, &tls.Config{Certificates: []tls.Certificate{certificate}})
	lab.Expect(t, way.Must(t, with(port, settingsOf{"tls": settingsOf{"ca_pem": authority}})), guest.Success, "")
	lab.Expect(t, way.Must(t, with(port, settingsOf{"tls": settingsOf{}})), guest.Failure, "tls.untrusted")
}

func wrongTransport(t *testing.T, way lab.Way) {
	// Servers that send a fixed reply to any request.
	answer := "\x80\x01\x00\x02\x00\x00\x00\x04ping\x00\x00\x00\x01\x00"
	says := func(text string) func(net.Conn) {
		return func(c net.Conn) { io.WriteString(c, text); io.Copy(io.Discard, c) }
	}
	cases := []struct{ transport, says, detail string }{
		{"framed", answer, "it answers unframed"},
		{"unframed", "\x00\x00\x00\x11" + answer, "it answers framed"},
		{"unframed", "HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"},
		{"framed", "HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"},
		{"unframed", "220 mail.example ESMTP\r\n", "not Thrift's binary protocol"},
		{"framed", "\xff\xff\xff\xff\xff\xff\xff\xff", "not a frame"},
		{"framed", "\x00\x00\x00\x04\x80\x01\x00\x02", "longer than it says"},
		{"unframed", "\x80\x01\x00\x02\x7f\xff\xff\xff", "exceeded"},
		{"unframed", answer, "the answer is to call"},
		{"unframed", "\x80\x01\x00\x02\x00\x00\x00\x04pong\x00\x00\x00\x01\x00", "pong"},
	}
	for _, c := range cases {
		port := lab.Serve(t, says(c.says))
		got := lab.Expect(t, way.Must(t, with(port, settingsOf{"transport": c.transport})), guest.Failure, "thrift.protocol")
		if !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%q: the detail is %q, want %q", c.says, got.Detail, c.detail)
		}
	}
}

func onlyAccepts(t *testing.T, way lab.Way) {
	mute := way.Must(t, with(lab.Serve(t, func(c net.Conn) { io.Copy(io.Discard, c) }), nil))
	lab.TimesOut(t, mute, 200*time.Millisecond, "tcp.timeout")
	closing := way.Must(t, with(lab.Serve(t, func(c net.Conn) { c.Read(make([]byte, 64)) }), nil))
	lab.Expect(t, closing, guest.Failure, "tcp.closed")
	refused := way.Must(t, with(gatewaytest.FreePort(t), nil))
	lab.Expect(t, refused, guest.Failure, "tcp.refused")
}

func checksSettings(t *testing.T, way lab.Way) {
	for field, more := range map[string]settingsOf{
		"transport": {"transport": "compact"},
		"method":    {"method": ""},
		"service":   {"service": strings.Repeat("x", 256)},
	} {
		_, err := way(t, lab.Target{}, with("1", more))
		if err == nil || !strings.HasPrefix(err.Error(), field+" ") {
			t.Errorf("%v was answered by: %v", more, err)
		}
	}
}

func TestThePluginPassesTheConformanceKit(t *testing.T) {
	tier.CI(t)
	lab.Conforms(t, lab.Build(t, "."), start(t, service, true, nil), "{}")
}

// FuzzAnAnswer verifies that parsing ends, whatever the server sends.
func FuzzAnAnswer(f *testing.F) {
	f.Add([]byte("\x80\x01\x00\x02\x00\x00\x00\x04ping\x00\x00\x00\x01\x00"), false)
	f.Add([]byte("\x00\x00\x00\x11\x80\x01\x00\x02\x00\x00\x00\x04ping\x00\x00\x00\x01\x00"), true)
	f.Add([]byte("\x80\x01\x00\x03\x00\x00\x00\x04ping\x00\x00\x00\x01\x0b\x00\x01\x00\x00\x00\x01x\x08\x00\x02\x00\x00\x00\x01\x00"), false)
	f.Fuzz(func(t *testing.T, answer []byte, framed bool) {
		s := &settings{Method: "ping", Transport: "unframed"}
		if framed {
			s.Transport = "framed"
		}
		r, err := s.read(bufio.NewReader(bytes.NewReader(answer)), 1)
		if got := s.judge(r); err == nil && got.Outcome == guest.Unknown {
			t.Errorf("%q is judged as %+v", answer, got)
		}
		if len(r.text) > maxText || len(r.value) > maxText {
			t.Error(fmt.Sprint("a text is too long: ", len(r.text), len(r.value)))
		}
	})
}
