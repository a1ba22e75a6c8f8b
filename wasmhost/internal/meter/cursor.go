package meter

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// cursor reads a part of a module's binary format. After an error it returns zero values;
// err is the first error.
type cursor struct {
	b   []byte
	at  int
	err error
}

var errShort = errors.New("ends too early")

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.at = len(c.b)
}

// end returns the first error, or one if something is left to read.
func (c *cursor) end() error {
	if c.err == nil && c.at != len(c.b) {
		c.fail(fmt.Errorf("%d bytes are left over", len(c.b)-c.at))
	}
	return c.err
}

func (c *cursor) byte() byte {
	if c.at >= len(c.b) {
		c.fail(errShort)
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *cursor) skip(n uint32) { c.bytes(n) }

func (c *cursor) bytes(n uint32) []byte {
	if uint64(n) > uint64(len(c.b)-c.at) {
		c.fail(errShort)
		return nil
	}
	from := c.at
	c.at += int(n)
	return c.b[from:c.at]
}

func (c *cursor) name() []byte { return c.bytes(c.uint32()) }

func (c *cursor) uint32() uint32 {
	if c.at < len(c.b) && c.b[c.at] < 0x80 { // nearly always
		c.at++
		return uint32(c.b[c.at-1])
	}
	n, rest, err := abi.Uint32(c.b[c.at:])
	if err != nil {
		c.fail(err)
		return 0
	}
	c.at = len(c.b) - len(rest)
	return n
}

// signed reads a signed LEB128 number of at most max bytes, and returns it; bits beyond
// 64 are lost.
func (c *cursor) signed(max int) (n int64) {
	for i := range max {
		b := c.byte()
		n |= int64(b&0x7f) << (7 * i)
		if b >= 0x80 {
			continue
		}
		if shift := 7 * (i + 1); b&0x40 != 0 && shift < 64 {
			n |= -1 << shift
		}
		return n
	}
	c.fail(fmt.Errorf("number has more than %d bytes", max))
	return 0
}

// index reads an index, which must be below n.
func (c *cursor) index(n int, of string) uint32 {
	i := c.uint32()
	if c.err == nil && uint64(i) >= uint64(n) {
		c.fail(fmt.Errorf("there is no %s %d", of, i))
	}
	return i
}

// count yields n times, for entries of at least size bytes each, until an error occurs.
func (c *cursor) count(n uint32, size int) func(func(uint32) bool) {
	if uint64(n)*uint64(size) > uint64(len(c.b)-c.at) {
		c.fail(fmt.Errorf("%d entries cannot be in the %d bytes that are left", n, len(c.b)-c.at))
	}
	return func(yield func(uint32) bool) {
		for i := uint32(0); i < n && c.err == nil && yield(i); i++ {
		}
	}
}

func (c *cursor) limits() {
	flags := c.byte()
	if flags > 1 {
		c.fail(fmt.Errorf("limits with unknown flags %#x", flags))
	}
	c.uint32()
	if flags == 1 {
		c.uint32()
	}
}
