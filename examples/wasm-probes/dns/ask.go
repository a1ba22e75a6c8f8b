package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-probe/sonde/guest"
)

// Limits on what a server sends.
const (
	maxDatagram = 64 << 10 // a message is never longer, by its format
	maxRecords  = 256      // that are read
	maxStrays   = 100      // datagrams that do not answer the question
	maxAliases  = 16       // CNAME records that lead from the name to the records
)

// A datagram that is not answered was lost: the question is asked up to questions times, the next time after an equal
// part of the time that is left, or askAgain.
const (
	questions = 3
	askAgain  = 2 * time.Second
)

// answer is a server's answer to the question.
type answer struct {
	rcode         dnsmessage.RCode
	authoritative bool
	truncated     bool
	records       []string // of the name and the type that were asked for
	others        int      // of other names or classes
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
		return s.overUDP(ctx, c, id, query)
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

// overUDP sends a datagram and waits for its answer. It sends it again when that does not come.
func (s *settings) overUDP(ctx context.Context, c net.Conn, id uint16, query []byte) (answer, error) {
	b := make([]byte, maxDatagram)
	strays := 0
	for asked := 1; ; asked++ {
		if _, err := c.Write(query); err != nil {
			return answer{}, err
		}
		if err := waitUntil(ctx, c, questions-asked); err != nil {
			return answer{}, err
		}
		a, err := s.readDatagrams(c, id, b, &strays)
		if late := net.Error(nil); asked == questions || !errors.As(err, &late) || !late.Timeout() || ctx.Err() != nil {
			return a, err
		}
	}
}

// waitUntil lets reads end when it is time to ask again, or at the deadline if that may be done no more.
func waitUntil(ctx context.Context, c net.Conn, again int) error {
	end, ok := ctx.Deadline()
	if again == 0 {
		return c.SetReadDeadline(end) // the zero time removes it
	}
	wait := askAgain
	if ok {
		wait = min(wait, time.Until(end)/time.Duration(again+1))
	}
	return c.SetReadDeadline(time.Now().Add(wait))
}

// readDatagrams reads datagrams until one answers the question.
func (s *settings) readDatagrams(c net.Conn, id uint16, b []byte, strays *int) (answer, error) {
	for ; *strays < maxStrays; *strays++ {
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

// records reads the records of the name and type that were asked for. CNAME records, in any order, lead from the
// name to others.
func (s *settings) records(p *dnsmessage.Parser, a *answer) error {
	all, err := p.AllAnswers()
	switch {
	case err != nil:
		return fmt.Errorf("the answer cannot be read: %w", err)
	case len(all) > maxRecords:
		return fmt.Errorf("the answer has more than %d records", maxRecords)
	}
	all = slices.DeleteFunc(all, func(r dnsmessage.Resource) bool { return r.Header.Class != s.question.Class })
	owners := s.owners(all)
	a.others = int(a.answers) - len(all)
	for _, r := range all {
		switch {
		case !slices.Contains(owners, host(r.Header.Name)):
			a.others++
		case r.Header.Type == s.question.Type || s.question.Type == dnsmessage.TypeALL:
			if err := s.add(a, r); err != nil {
				return fmt.Errorf("the answer cannot be read: %w", err)
			}
		}
	}
	return nil
}

// owners returns the name that was asked for, and those to which its CNAME records lead. Who asks for CNAME records, or
// for all, asks for those of the name itself.
func (s *settings) owners(all []dnsmessage.Resource) []string {
	owners := []string{host(s.question.Name)}
	own := s.question.Type == dnsmessage.TypeCNAME || s.question.Type == dnsmessage.TypeALL
	for i := 0; i < len(owners) && i < maxAliases && !own; i++ {
		for _, r := range all {
			alias, ok := r.Body.(*dnsmessage.CNAMEResource)
			if ok && host(r.Header.Name) == owners[i] && !slices.Contains(owners, host(alias.CNAME)) {
				owners = append(owners, host(alias.CNAME))
			}
		}
	}
	return owners
}

// add adds a record, with its type in front if all types were asked for.
func (s *settings) add(a *answer, r dnsmessage.Resource) error {
	if soa, ok := r.Body.(*dnsmessage.SOAResource); ok {
		a.serial = soa.Serial
	}
	text, err := record(r.Body)
	if s.question.Type == dnsmessage.TypeALL {
		name, _ := typeName(r.Header.Type)
		text = name + " " + text
	}
	a.records = append(a.records, text)
	return err
}
