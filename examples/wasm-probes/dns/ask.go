package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-probe/sonde/guest"
)

// Limits on what a server sends.
const (
	maxDatagram = 64 << 10 // a message is never longer, by its format
	maxRecords  = 256      // that are read
	maxStrays   = 100      // datagrams that do not answer the question
)

// answer is a server's answer to the question.
type answer struct {
	rcode         dnsmessage.RCode
	authoritative bool
	truncated     bool
	records       []string // those of the type that was asked for
	serial        uint32   // of the zone, if its SOA record was asked for

	answers, authorities, additionals uint16 // how many records there are, by the header
}

// errStray means that a message does not answer the question: it is a late answer to an
// earlier question, or a forged one.
var errStray = errors.New("the answer is to another question")

// ask sends the question and reads the answer.
func ask(ctx context.Context, t guest.Target[settings], network string) (answer, error) {
	s := t.Settings
	c, err := t.DialPort(ctx, network, s.Port, s.TLS)
	if err != nil {
		return answer{}, err
	}
	defer c.Close()
	var unpredictable [2]byte
	rand.Read(unpredictable[:]) // never fails
	id := binary.BigEndian.Uint16(unpredictable[:])
	query, err := s.query(id)
	if err != nil {
		return answer{}, err
	}
	if network == "udp" {
		return s.overUDP(c, id, query)
	}
	return s.overTCP(c, id, query)
}

// query returns the question as a message.
func (s *settings) query(id uint16) ([]byte, error) {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: s.Recursion},
		Questions: []dnsmessage.Question{s.question},
	}
	return m.Pack()
}

// overUDP sends a datagram and waits for its answer.
func (s *settings) overUDP(c net.Conn, id uint16, query []byte) (answer, error) {
	if _, err := c.Write(query); err != nil {
		return answer{}, err
	}
	b := make([]byte, maxDatagram)
	for range maxStrays {
		n, err := c.Read(b)
		if err != nil {
			return answer{}, err
		}
		if a, err := s.read(b[:n], id); !errors.Is(err, errStray) {
			return a, err
		}
	}
	return answer{}, fmt.Errorf("%w, as were %d before it", errStray, maxStrays)
}

// overTCP sends and reads messages with their length in front (RFC 1035, section 4.2.2).
func (s *settings) overTCP(c net.Conn, id uint16, query []byte) (answer, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return answer{}, err
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return answer{}, err
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return answer{}, err
	}
	return s.read(b, id)
}

// read reads a message.
func (s *settings) read(b []byte, id uint16) (answer, error) {
	var p dnsmessage.Parser
	head, err := p.Start(b)
	if err != nil || head.ID != id || !head.Response {
		return answer{}, errStray
	}
	if err := s.sameQuestion(&p, head.RCode); err != nil {
		return answer{}, err
	}
	a := answer{
		rcode: head.RCode, authoritative: head.Authoritative, truncated: head.Truncated,
		answers: binary.BigEndian.Uint16(b[6:]), authorities: binary.BigEndian.Uint16(b[8:]), additionals: binary.BigEndian.Uint16(b[10:]),
	}
	if a.truncated {
		return a, nil // it may be truncated anywhere
	}
	return a, s.records(&p, &a)
}

// sameQuestion checks that a message repeats the question. A server that cannot parse a
// question need not repeat it.
func (s *settings) sameQuestion(p *dnsmessage.Parser, code dnsmessage.RCode) error {
	all, err := p.AllQuestions()
	if err == nil && len(all) == 0 && (code == dnsmessage.RCodeFormatError || code == dnsmessage.RCodeNotImplemented) {
		return nil
	}
	if err != nil || len(all) != 1 {
		return errStray
	}
	q, own := all[0], s.question
	if q.Type != own.Type || q.Class != own.Class || !strings.EqualFold(q.Name.String(), own.Name.String()) {
		return errStray
	}
	return nil
}

// records reads the records of the requested type. It skips the CNAME records that lead
// to them.
func (s *settings) records(p *dnsmessage.Parser, a *answer) error {
	for range maxRecords {
		head, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err == nil && head.Type != s.question.Type {
			err = p.SkipAnswer()
		} else if err == nil {
			err = a.readRecord(p)
		}
		if err != nil {
			return fmt.Errorf("the answer cannot be read: %w", err)
		}
	}
	return fmt.Errorf("the answer has more than %d records", maxRecords)
}

func (a *answer) readRecord(p *dnsmessage.Parser) error {
	r, err := p.Answer()
	if err != nil {
		return err
	}
	if soa, ok := r.Body.(*dnsmessage.SOAResource); ok {
		a.serial = soa.Serial
	}
	if text, ok := record(r.Body); ok {
		a.records = append(a.records, text)
	}
	return nil
}
