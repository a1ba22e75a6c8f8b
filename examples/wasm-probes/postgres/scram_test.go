package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
)

// TestProofs has the example of RFC 7677, section 3.
func TestProofs(t *testing.T) {
	e := exchange{first: "n=user,r=rOprNGfwEbeRWgbNEkqO"}
	if err := e.challenge("r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"); err != nil {
		t.Fatal(err)
	}
	k, err := e.keyOf("pencil", key{})
	if err != nil {
		t.Fatal(err)
	}
	client, server := e.proofs(k.salted[:])
	if encode(client) != "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=" || encode(server) != "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" {
		t.Errorf("the proofs are %s and %s", encode(client), encode(server))
	}
}

func TestKeysAreKeptForWhatTheyWereMadeOf(t *testing.T) {
	e := exchange{salt: []byte("salt"), iterations: 1}
	k, err := e.keyOf("geheim", key{})
	if err != nil {
		t.Fatal(err)
	}
	kept := parseKey(k.bytes())
	kept.salted[0]++ // so that it differs from a new one
	for _, test := range []struct {
		what     string
		exchange exchange
		password string
		same     bool
	}{
		{"the same", e, "geheim", true},
		{"another password", e, "anders", false},
		{"another salt", exchange{salt: []byte("pepper"), iterations: 1}, "geheim", false},
		{"another number", exchange{salt: []byte("salt"), iterations: 2}, "geheim", false},
	} {
		got, err := test.exchange.keyOf(test.password, kept)
		if err != nil || (got == kept) != test.same {
			t.Errorf("%s: %v, %v", test.what, got == kept, err)
		}
	}
	if got := parseKey(k.bytes()[:40]); got == k {
		t.Error("half a key is read as a whole one")
	}
}

// asksSCRAM starts a server that requires SCRAM and sends the given messages.
func asksSCRAM(t *testing.T, challenge func(mine string) string, final string) (port string) {
	t.Helper()
	return lab.Serve(t, func(c net.Conn) {
		in := pgproto3.NewBackend(c, c)
		if _, err := in.ReceiveStartupMessage(); err != nil {
			return
		}
		_, _ = io.WriteString(c, messageOf('R', "\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00"))
		_ = in.SetAuthType(pgproto3.AuthTypeSASL) // the type is valid
		m, err := in.Receive()
		first, ok := m.(*pgproto3.SASLInitialResponse)
		if err != nil || !ok {
			return
		}
		_, mine, _ := strings.Cut(string(first.Data), "r=")
		_, _ = io.WriteString(c, messageOf('R', "\x00\x00\x00\x0b"+challenge(mine)))
		_ = in.SetAuthType(pgproto3.AuthTypeSASLContinue)
		if _, err := in.Receive(); err == nil {
			_, _ = io.WriteString(c, final)
		}
	})
}

func TestServersThatDoNotKnowThePassword(t *testing.T) {
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		good := func(mine string) string { return "r=" + mine + "server,s=c2FsdA==,i=1" }
		says := func(text string) func(string) string { return func(string) string { return text } }
		const ok = "\x00\x00\x00\x00"
		for name, test := range map[string]struct {
			challenge     func(mine string) string
			final, detail string
		}{
			"a wrong proof":           {good, messageOf('R', "\x00\x00\x00\x0cv=AAAA") + messageOf('R', ok), "cannot prove that it knows the password"},
			"no proof":                {good, messageOf('R', "\x00\x00\x00\x0c") + messageOf('R', ok), "cannot prove that it knows the password"},
			"another nonce":           {says("r=server,s=c2FsdA==,i=1"), "", "nonce"},
			"the nonce alone":         {func(mine string) string { return "r=" + mine + ",s=c2FsdA==,i=1" }, "", "nonce"},
			"no salt":                 {func(mine string) string { return "r=" + mine + "x,s=,i=1" }, "", "salt"},
			"a broken salt":           {func(mine string) string { return "r=" + mine + "x,s=!,i=1" }, "", "salt"},
			"no number":               {func(mine string) string { return "r=" + mine + "x,s=c2FsdA==,i=" }, "", "iterations"},
			"too much to compute":     {func(mine string) string { return "r=" + mine + "x,s=c2FsdA==,i=2147483647" }, "", "2147483647"},
			"nothing of the kind":     {says("e=other-error"), "", mechanism},
			"an extension of its own": {says("m=ext,r=server,s=c2FsdA==,i=1"), "", mechanism},
		} {
			a := way.Must(t, fmt.Sprintf(`{"port": %q, "user": "probe", "password": "geheim"}`, asksSCRAM(t, test.challenge, test.final)))
			r := lab.Expect(t, a, guest.Failure, "postgres.protocol")
			if !strings.Contains(r.Detail, test.detail) {
				t.Errorf("%s: %s", name, r.Detail)
			}
		}
	})
}

// spoken is a connection on which a server sends a fixed text, regardless of its input.
type spoken struct {
	net.Conn
	io.Reader
}

func (s spoken) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s spoken) Write(p []byte) (int, error) { return len(p), nil }

// FuzzDoor verifies that authentication ends, whatever a server sends, and that all other bytes
// reach the library unchanged.
func FuzzDoor(f *testing.F) {
	const sasl = "R\x00\x00\x00\x17\x00\x00\x00\x0aSCRAM-SHA-256\x00\x00"
	f.Add(messageOf('R', "\x00\x00\x00\x00") + messageOf('Z', "I"))
	f.Add(sasl + messageOf('R', "\x00\x00\x00\x0br=x,s=c2FsdA==,i=1"))
	f.Add(sasl + messageOf('E', "SFATAL\x00C28P01\x00Mno\x00\x00"))
	f.Add(messageOf('v', "\x00\x03\x00\x00\x00\x00\x00\x00") + messageOf('R', "\x00\x00\x00\x05salt"))
	f.Fuzz(func(t *testing.T, text string) {
		d := &door{Conn: spoken{Reader: strings.NewReader(text)}, password: "geheim", keep: func([]byte) error { return nil }}
		got, err := io.ReadAll(d)
		if err == nil && !strings.HasSuffix(text, string(got)) {
			t.Errorf("of %q the library gets %q", text, got)
		}
	})
}
