package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// magic identifies the file. Another version of the records gets another number.
const magic = "sonde state 2"

// The records. A frame of the journal begins with the time, and has any number of others
// after it.
const (
	recordTime          = 't' // varint wall clock, varint time since boot; see moment
	recordBoot          = 'b' // string: the boot ID
	recordMemory        = 'm' // kind, string target, string name, string: the Memory as JSON
	recordMemoryRemoved = 'r' // kind, string target, string name
	recordValue         = 'v' // string key, string value
	recordValueRemoved  = 'd' // string key
)

// maxRecord bounds a record, so that several fit into a frame.
const maxRecord = 256 << 10

func appendString[T ~string | ~[]byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendTime(b []byte, m moment) []byte {
	b = append(b, recordTime)
	b = binary.AppendVarint(b, m.wall)
	return binary.AppendVarint(b, m.sinceBoot)
}

func appendID(b []byte, record byte, id probe.ID) []byte {
	b = append(b, record, byte(id.Kind))
	b = appendString(b, id.Target)
	return appendString(b, id.Name)
}

// appendMemory appends the record of a probe. It returns an error and the same b for a
// memory that cannot be read back.
func appendMemory(b []byte, id probe.ID, m engine.Memory) ([]byte, error) {
	value, err := m.MarshalBinary()
	if err != nil {
		return b, err
	}
	if len(value)+len(id.Target)+len(id.Name) > maxRecord {
		return b, fmt.Errorf("memory of probe %q is too long", id)
	}
	return appendString(appendID(b, recordMemory, id), value), nil
}

func appendValue(b []byte, key string, value []byte) ([]byte, error) {
	if len(key)+len(value) > maxRecord {
		return b, fmt.Errorf("value %q is too long", key)
	}
	return appendString(appendString(append(b, recordValue), key), value), nil
}

// content is what the records add up to.
type content struct {
	memories map[probe.ID]engine.Memory
	values   map[string][]byte
	boot     string
	written  moment
	instance string // of the last memory, to be shared by equal ones

	unfinished int64 // bytes at the end of the file that were ignored
}

func newContent() *content {
	return &content{memories: map[probe.ID]engine.Memory{}, values: map[string][]byte{}}
}

// accept reads the records of a frame.
func (c *content) accept(frame []byte) error {
	d := decoder{rest: frame}
	if len(frame) == 0 || frame[0] != recordTime {
		return errors.New("record without a time")
	}
	for len(d.rest) > 0 && d.err == nil {
		switch record := d.byte(); record {
		case recordTime:
			c.written = moment{wall: d.varint(), sinceBoot: d.varint()}
		case recordBoot:
			c.boot = string(d.bytes())
		case recordMemory:
			id, value := d.id(), d.bytes()
			if d.err == nil {
				d.err = c.addMemory(id, value)
			}
		case recordMemoryRemoved:
			delete(c.memories, d.id())
		case recordValue:
			key, value := string(d.bytes()), d.bytes()
			c.values[key] = append([]byte(nil), value...)
		case recordValueRemoved:
			delete(c.values, string(d.bytes()))
		default:
			return fmt.Errorf("record of the unknown type %q", record)
		}
	}
	return d.err
}

func (c *content) addMemory(id probe.ID, value []byte) error {
	var m engine.Memory
	if err := m.UnmarshalBinary(value); err != nil {
		return fmt.Errorf("probe %q: %w", id, err)
	}
	if err := id.Check(); err != nil {
		return fmt.Errorf("probe %q: %w", id, err)
	}
	if m.State.Instance == c.instance {
		m.State.Instance = c.instance
	}
	c.instance = m.State.Instance
	c.memories[id] = m
	return nil
}

// restored returns the content of a file that was written at a time, when the wall clock
// was shift behind what it would be now.
func (c *content) restored(written time.Time, shift time.Duration) Restored {
	for id, m := range c.memories {
		m.Since = moved(m.Since, shift, written)
		m.InstanceSince = moved(m.InstanceSince, shift, written)
		c.memories[id] = m
	}
	return Restored{Memories: c.memories, Values: c.values, Written: written, Shift: shift}
}

// moved returns a time that was recorded before the clock was set, and is not after the
// latest.
func moved(t time.Time, shift time.Duration, latest time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	if t = t.Add(shift); t.After(latest) {
		return latest
	}
	return t
}

// decoder reads a frame until there is an error.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() {
	if d.rest = nil; d.err == nil {
		d.err = errors.New("record is truncated")
	}
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.rest)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) bytes() []byte {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(len(d.rest)-size) {
		d.fail()
		return nil
	}
	b := d.rest[size : size+int(n)]
	d.rest = d.rest[size+int(n):]
	return b
}

func (d *decoder) id() probe.ID {
	return probe.ID{Kind: probe.Kind(d.byte()), Target: string(d.bytes()), Name: string(d.bytes())}
}
