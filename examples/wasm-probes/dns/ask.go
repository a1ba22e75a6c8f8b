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

// Limits on the data of a server.
const (
	maxDatagram = 64 << 10 // the format allows no longer message
	maxRecords  = 256      // records that are read
	maxStrays   = 100      // datagrams that do not belong to the query
	maxAliases  = 16       // CNAME records between the name and the records
)

// A datagram without a response is assumed to be lost. The query is sent up to questions times. Each wait is an equal
// part of the remaining time, but at most askAgain.
const (
	questions = 3
	askAgain  = 2 * time.Second
)

// answer is a server's response to the query.
type answer struct {
	rcode         dnsmessage.RCode
	authoritative bool
	truncated     bool
	records       []string // of the queried name and type
	others        int      // number of records with other names or classes
	serial        uint32   // of the zone, if its SOA record was queried

	answers, authorities, additionals uint16 // numbers of records, from the header
}

// errStray means that a message does not belong to the query: it is a late response to an earlier
// query, or a forged one.
var errStray = errors.New("the response does not match the query")

// ask sends the query and reads the response.
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

// query returns the query as a message.
func (s *settings) query(id uint16) ([]byte, error) {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: s.Recursion},
		Questions: []dnsmessage.Question{s.question},
	}
	return m.Pack()
}

// overUDP sends the query and waits for the response. It retransmits the query if none arrives.
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

// waitUntil sets the read deadline to the time of the next retransmission, or to the deadline of ctx if
// again, the number of retransmissions left, is 0.
func waitUntil(ctx context.Context, c net.Conn, again int) error {
	end, ok := ctx.Deadline()
	if again == 0 {
		return c.SetReadDeadline(end) // the zero time removes the deadline
	}
	wait := askAgain
	if ok {
		wait = min(wait, time.Until(end)/time.Duration(again+1))
	}
	return c.SetReadDeadline(time.Now().Add(wait))
}

// readDatagrams reads datagrams until one is the response to the query.
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

// overTCP sends and reads length-prefixed messages (RFC 1035, section 4.2.2).
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

// read parses a message.
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
		return a, nil // the message may be truncated anywhere
	}
	return a, s.records(&p, &a)
}

// sameQuestion checks that a message repeats the question. A server that cannot parse the question
// need not repeat it.
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

// records reads the records of the queried type that belong to the queried name, or to a name that its CNAME
// records lead to. CNAME records may be in any order.
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

// owners returns the queried name and the names to which its CNAME records lead. If CNAME records or all records are
// queried, only the name itself counts.
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

// add adds a record, prefixed with its type if all types were queried.
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
