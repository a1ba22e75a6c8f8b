package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Memory is what an engine remembers about one probe, for another engine to go on with:
// after a restart, or on another machine. Engine.Snapshot returns it, and Change gives
// it to an engine together with the probe. The zero Memory has seen nothing.
type Memory struct {
	State   verdict.State
	Since   time.Time // when State.Verdict was published
	Changes uint64    // how often State.Verdict or State.Instance has changed

	Started       bool      // the instance State.Instance has started: its startup probes have passed
	InstanceSince time.Time // when that instance began to run; zero if it is not known

	// Warned says that the latest attempt that passed was a warning. The binary form is without it: an engine finds that out
	// by its first attempt.
	Warned bool

	Endpoint uint64 // identifies what was probed: see probe.EndpointHandler; 0 if it is not known
	Handler  uint32 // identifies how it was probed: see probe.Probe.Revision; 0 if it is not known
}

// handlerOf returns the Memory.Handler of a probe: a hash, and 0 without a revision. It must
// not change, as that of endpointOf.
func handlerOf(name, revision string) uint32 {
	if revision == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, name+"\x00"+revision)
	return max(h.Sum32(), 1)
}

// endpointOf returns the Memory.Endpoint of a probe: a hash, which is never 0. It must not
// change, since a later release reads it.
func endpointOf(configured probe.Handler, t probe.Target) uint64 {
	sum := func(text string, port uint16) uint64 {
		h := fnv.New64a()
		_, _ = io.WriteString(h, text)
		_, _ = h.Write([]byte{0, byte(port >> 8), byte(port)})
		return h.Sum64()
	}
	if h, ok := configured.(probe.EndpointHandler); ok {
		return max(sum(h.Endpoint(t), 0), 1)
	}
	all := sum(t.Address, 0)
	for name, port := range t.Ports {
		all += sum(name, port) // in any order
	}
	return max(all, 1)
}

// Check returns an error if m is no memory of a probe with rule r: no probe of that
// kind can have such a state.
func (m Memory) Check(r probe.Rule) error {
	_, err := verdict.Restore(r, m.State)
	return err
}

// Renewed returns the memory for a probe of a kind that goes on with its verdict, and
// starts a new run of equal outcomes: its first attempt is made at once, and not at its
// regular time. A failed startup or liveness probe is no longer on hold.
func (m Memory) Renewed(k probe.Kind) Memory {
	m.State = verdict.Renew(k, m.State)
	return m
}

// The binary form of a Memory: a version, flags, and numbers as varints, 20 to 50 bytes
// with a short instance ID.
//
//	version  2, or 3 with the policy "evidence"
//	flags    bits 0 and 1: verdict; 2 and 3: last outcome; 4: on hold; 5: down; 6: started; 7: endpoint
//	uvarint  run, or in version 3 the score as verdict.State has it; errors, changes
//	varint   since, instance since, in nanoseconds since 1970; 0 for the zero time
//	uint64   endpoint, little endian; only with its flag
//	uint32   handler, little endian; not in version 1
//	string   instance: the rest
//
// A state without evidence has version 2, so that an earlier release reads it.
const (
	memoryVersion         = 2
	memoryVersionEvidence = 3
)

var errMemoryTruncated = errors.New("memory: its binary form is truncated")

const (
	flagOnHold   = 1 << 4
	flagDown     = 1 << 5
	flagStarted  = 1 << 6
	flagEndpoint = 1 << 7
)

// MarshalBinary implements encoding.BinaryMarshaler. The form has a version, and is
// read by later releases.
func (m Memory) MarshalBinary() ([]byte, error) { return m.AppendBinary(nil) }

// AppendBinary implements encoding.BinaryAppender. It returns an error for a State that
// verdict.Step never returns, and for a time that is not from 1678 to 2262.
func (m Memory) AppendBinary(b []byte) ([]byte, error) {
	s := &m.State
	if s.Verdict > probe.Failing || s.Last > probe.Failure || s.Policy > probe.PolicyEvidence || s.Run < 0 || s.Errors < 0 {
		return b, fmt.Errorf("memory: invalid state %+v", *s)
	}
	since, err := nanoseconds(m.Since)
	instanceSince, instanceErr := nanoseconds(m.InstanceSince)
	if err := errors.Join(err, instanceErr); err != nil {
		return b, err
	}
	flags := byte(s.Verdict) | byte(s.Last)<<2
	flags |= bit(s.OnHold, flagOnHold) | bit(s.Down, flagDown) | bit(m.Started, flagStarted) | bit(m.Endpoint != 0, flagEndpoint)
	version := byte(memoryVersion)
	if s.Policy == probe.PolicyEvidence {
		version = memoryVersionEvidence
	}
	b = append(b, version, flags)
	b = binary.AppendUvarint(b, uint64(s.Run))
	b = binary.AppendUvarint(b, uint64(s.Errors))
	b = binary.AppendUvarint(b, m.Changes)
	b = binary.AppendVarint(b, since)
	b = binary.AppendVarint(b, instanceSince)
	if m.Endpoint != 0 {
		b = binary.LittleEndian.AppendUint64(b, m.Endpoint)
	}
	b = binary.LittleEndian.AppendUint32(b, m.Handler)
	return append(b, s.Instance...), nil
}

func bit(set bool, flag byte) byte {
	if set {
		return flag
	}
	return 0
}

// nanoseconds returns t as nanoseconds since 1970, and 0 for the zero time.
func nanoseconds(t time.Time) (int64, error) {
	if t.IsZero() {
		return 0, nil
	}
	n := t.UnixNano()
	if !time.Unix(0, n).Equal(t) {
		return 0, fmt.Errorf("memory: time %v is not from 1678 to 2262", t)
	}
	return n, nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler. If it returns an error, it has
// not changed m. Whether the state is one of a probe's kind is for Check to say.
func (m *Memory) UnmarshalBinary(b []byte) error {
	if len(b) < 2 {
		return errMemoryTruncated
	}
	if b[0] == 0 || b[0] > memoryVersionEvidence {
		return fmt.Errorf("memory: version %d is not supported, this release has versions up to %d", b[0], memoryVersionEvidence)
	}
	flags := b[1]
	d := decoder{rest: b[2:]}
	read := Memory{Started: flags&flagStarted != 0}
	s := &read.State
	s.Verdict, s.Last = probe.Verdict(flags&3), probe.Outcome(flags>>2&3)
	if b[0] == memoryVersionEvidence {
		s.Policy = probe.PolicyEvidence
	}
	s.OnHold, s.Down = flags&flagOnHold != 0, flags&flagDown != 0
	s.Run, s.Errors, read.Changes = d.count(), d.count(), d.uvarint()
	read.Since, read.InstanceSince = d.time(), d.time()
	if flags&flagEndpoint != 0 {
		read.Endpoint = d.endpoint()
	}
	if b[0] > 1 {
		read.Handler = d.handler()
	}
	s.Instance = string(d.rest)
	if d.err == nil && s.Verdict > probe.Failing {
		d.err = fmt.Errorf("memory: flags %#x are not known", flags)
	}
	if d.err != nil {
		return d.err
	}
	*m = read
	return nil
}

// decoder reads varints until there is an error.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	d.advance(size)
	return n
}

// count reads a number of attempts.
func (d *decoder) count() int32 {
	n := d.uvarint()
	if n > math.MaxInt32 && d.err == nil {
		d.err = fmt.Errorf("memory: %d attempts are too many", n)
	}
	return int32(n)
}

func (d *decoder) time() time.Time {
	n, size := binary.Varint(d.rest)
	d.advance(size)
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// endpoint reads a hash. A 0 would not be written again.
func (d *decoder) endpoint() (hash uint64) {
	if len(d.rest) >= 8 {
		hash = max(binary.LittleEndian.Uint64(d.rest), 1)
	}
	if d.rest = d.rest[min(8, len(d.rest)):]; hash == 0 && d.err == nil {
		d.err = errMemoryTruncated
	}
	return hash
}

// handler reads a hash, or 0.
func (d *decoder) handler() (hash uint32) {
	truncated := len(d.rest) < 4
	if !truncated {
		hash = binary.LittleEndian.Uint32(d.rest)
	}
	if d.rest = d.rest[min(4, len(d.rest)):]; truncated && d.err == nil {
		d.err = errMemoryTruncated
	}
	return hash
}

func (d *decoder) advance(size int) {
	if size > 0 {
		d.rest = d.rest[size:]
		return
	}
	d.rest = nil
	if d.err == nil {
		d.err = errMemoryTruncated
	}
}
