package sandbox

import (
	"crypto/rand"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// memory gives host functions access to the guest's memory. Addresses and lengths come from the guest and
// are validated, and the guest is charged for copying.
type memory struct {
	api.Memory
	*failures
	cpu *cpu
}

// bytes returns the bytes at an address.
func (m *memory) bytes(address, length uint32) ([]byte, bool) { return m.Read(address, length) }

// argument returns the guest's bytes whose address and length are arguments i and i+1. More than
// max bytes are an error.
func (m *memory) argument(a args, i, max int) ([]byte, abi.Errno) {
	at, length := a.u32(i), a.u32(i+1)
	if length > uint32(max) {
		return nil, m.failf(abi.E2BIG, "text of %d bytes is too long, at most %d are allowed", length, max)
	}
	b, ok := m.bytes(at, length)
	if !ok {
		return nil, m.failf(abi.EFAULT, "%d bytes at address %d are outside of the memory", length, at)
	}
	return b, abi.OK
}

// text is like argument, but returns a string.
func (m *memory) text(a args, i, max int) (string, abi.Errno) {
	b, errno := m.argument(a, i, max)
	m.cpu.charge(len(b) / copiedPerUnit)
	return string(b), errno
}

// key is like text, for the key of a held connection.
func (m *memory) key(a args, i int) (string, abi.Errno) {
	key, errno := m.text(a, i, abi.MaxKey)
	if errno == abi.OK && key == "" {
		errno = m.failf(abi.EINVAL, "key must not be empty")
	}
	return key, errno
}

// give returns the length of text. It writes text to at unless it is longer than room.
func (m *memory) give(text string, at, room uint32) int64 {
	m.cpu.charge(len(text) / copiedPerUnit)
	if len(text) <= int(room) && !m.WriteString(at, text) {
		return i32(0, abi.EFAULT)
	}
	return i32(len(text), abi.OK)
}

// put writes a 32-bit number.
func (m *memory) put(at, n uint32) abi.Errno {
	if !m.WriteUint32Le(at, n) {
		return abi.EFAULT
	}
	return abi.OK
}

// put2 writes two 32-bit numbers.
func (m *memory) put2(at1, at2, n1, n2 uint32) abi.Errno {
	if !m.WriteUint32Le(at1, n1) || !m.WriteUint32Le(at2, n2) {
		return abi.EFAULT
	}
	return abi.OK
}

// put64 writes a 64-bit number.
func (m *memory) put64(at uint32, n uint64) abi.Errno {
	if !m.WriteUint64Le(at, n) {
		return abi.EFAULT
	}
	return abi.OK
}

// random writes random bytes.
func (m *memory) random(at, length uint32) abi.Errno {
	if length > abi.MaxRandom {
		return abi.EINVAL
	}
	b, ok := m.bytes(at, length)
	if !ok {
		return abi.EFAULT
	}
	m.cpu.charge(len(b) / randomPerUnit)
	rand.Read(b) // never fails
	return abi.OK
}

// maxVector is the maximum number of buffers of a vector that one read or write examines.
const maxVector = 1024

// part returns buffer i of a vector.
func (m *memory) part(at, i uint32) ([]byte, abi.Errno) {
	m.cpu.charge(unitsPart)
	start, ok1 := m.ReadUint32Le(at + 8*i)
	length, ok2 := m.ReadUint32Le(at + 8*i + 4)
	if !ok1 || !ok2 {
		return nil, abi.EFAULT
	}
	part, ok := m.bytes(start, length)
	if !ok {
		return nil, abi.EFAULT
	}
	return part, abi.OK
}

// firstPart returns the first non-empty buffer of a vector: one read or write of a connection uses only
// this buffer. The guest then reads or writes the rest, as after any short read or write.
func (m *memory) firstPart(at, n uint32) ([]byte, abi.Errno) {
	for i := range min(n, maxVector) {
		if part, errno := m.part(at, i); errno != abi.OK || len(part) > 0 {
			return part, errno
		}
	}
	return nil, abi.OK
}
