package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// mechanism is that of RFC 7677, without channel binding, because the host handles TLS.
const mechanism = "SCRAM-SHA-256"

// maxIterations is the maximum number of hash iterations that a server may request. PostgreSQL's
// default is 4096; more than maxIterations would take longer than an attempt.
const maxIterations = 1 << 17

var errSCRAM = errors.New("the server does not log in as " + mechanism + " says")

// plain reports whether a password is printable ASCII, which the normalization of RFC 4013 leaves
// unchanged. The library handles other passwords.
func plain(password string) bool {
	return password != "" && !strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' })
}

// scram logs in, and returns the message after the login, which may be an error.
func (d *door) scram(offer message) (message, error) {
	if !slices.Contains(strings.Split(offer.step(), "\x00"), mechanism) {
		return offer, nil
	}
	e := exchange{first: "n=,r=" + rand.Text()}
	m, err := d.say(&pgproto3.SASLInitialResponse{AuthMechanism: mechanism, Data: []byte("n,," + e.first)})
	if err != nil || !m.asks(askSASLContinue) {
		return m, err
	}
	if err := e.challenge(m.step()); err != nil {
		return nil, err
	}
	if d.known, err = e.keyOf(d.password, d.known); err != nil {
		return nil, err
	}
	_ = d.keep(d.known.bytes()) // store it now: there may be no time left later
	client, server := e.proofs(d.known.salted[:])
	m, err = d.say(&pgproto3.SASLResponse{Data: []byte(e.final + ",p=" + encode(client))})
	if err != nil || !m.asks(askSASLFinal) {
		return m, err
	}
	if got := m.step(); !hmac.Equal([]byte(got), []byte("v="+encode(server))) {
		return nil, fmt.Errorf("%w: it cannot prove that it knows the password", errSCRAM)
	}
	return d.message()
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// exchange has the messages of both sides.
type exchange struct {
	first, answer, final string // the client-first, server-first and client-final messages, without the proof
	salt                 []byte
	iterations           int
}

// challenge parses the server-first message: "r=…,s=…,i=4096".
func (e *exchange) challenge(answer string) (err error) {
	parts := strings.Split(answer, ",")
	if len(parts) < 3 || !strings.HasPrefix(parts[1], "s=") || !strings.HasPrefix(parts[2], "i=") {
		return errSCRAM
	}
	_, mine, _ := strings.Cut(e.first, ",") // after the user name
	if !strings.HasPrefix(parts[0], mine) || parts[0] == mine {
		return fmt.Errorf("%w: its nonce is not behind the client's", errSCRAM)
	}
	if e.salt, err = base64.StdEncoding.DecodeString(parts[1][2:]); err != nil || len(e.salt) == 0 {
		return fmt.Errorf("%w: the salt is %.60q", errSCRAM, parts[1][2:])
	}
	e.iterations, err = strconv.Atoi(parts[2][2:])
	if err != nil || e.iterations < 1 || e.iterations > maxIterations {
		return fmt.Errorf("%w: it requests %.20q hash iterations, at most %d are possible", errSCRAM, parts[2][2:], maxIterations)
	}
	e.answer, e.final = answer, "c=biws,"+parts[0] // biws is "n,,"
	return nil
}

// proofs returns the proofs with which each side shows that it knows the password.
func (e *exchange) proofs(salted []byte) (client, server []byte) {
	all := e.first + "," + e.answer + "," + e.final
	client = sign(salted, "Client Key")
	stored := sha256.Sum256(client)
	subtle.XORBytes(client, client, sign(stored[:], all))
	return client, sign(sign(salted, "Server Key"), all)
}

func sign(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// key is a hashed password and its inputs. It is kept between attempts.
type key struct {
	of     [sha256.Size]byte // hash of the inputs: password, salt and number of iterations
	salted [sha256.Size]byte
}

// keyOf returns the key of an exchange. It returns known if its inputs are the same.
func (e *exchange) keyOf(password string, known key) (key, error) {
	of := binary.BigEndian.AppendUint32([]byte(password+"\x00"), uint32(e.iterations))
	k := key{of: sha256.Sum256(append(of, e.salt...))}
	if k.of == known.of {
		return known, nil
	}
	salted, err := pbkdf2.Key(sha256.New, password, e.salt, e.iterations, sha256.Size)
	if err != nil {
		return key{}, err
	}
	copy(k.salted[:], salted)
	return k, nil
}

// bytes and parseKey encode and decode a key.
func (k key) bytes() []byte { return slices.Concat(k.of[:], k.salted[:]) }

func parseKey(b []byte) (k key) {
	in := bytes.NewReader(b)
	_, _ = in.Read(k.of[:]) // missing bytes stay 0, and match no inputs
	_, _ = in.Read(k.salted[:])
	return k
}
