package fleet

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// The memories of a shard: a version, and compressed by flate for each probe
//
//	uint8   kind
//	string  target, name, memory: each a uvarint and so many bytes
const version = 1

// maxDecoded bounds the memories of a shard before they are compressed.
const maxDecoded = 8 << 20

var errTruncated = errors.New("memories are truncated")

// encode returns memories as bytes.
func encode(memories map[probe.ID]engine.Memory) ([]byte, error) {
	var plain []byte
	for id, m := range memories {
		b, err := m.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("probe %q: %w", id, err)
		}
		plain = append(plain, byte(id.Kind))
		for _, s := range [][]byte{[]byte(id.Target), []byte(id.Name), b} {
			plain = binary.AppendUvarint(plain, uint64(len(s)))
			plain = append(plain, s...)
		}
	}
	if len(plain) > maxDecoded {
		return nil, fmt.Errorf("memories have %d bytes, at most %d are allowed", len(plain), maxDecoded)
	}
	out := bytes.NewBuffer([]byte{version})
	w, err := flate.NewWriter(out, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// decode returns the memories that encode has made bytes of.
func decode(b []byte) (map[probe.ID]engine.Memory, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("memories have another version than %d", version)
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b[1:])), maxDecoded+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("memories: %w", err)
	case len(plain) > maxDecoded:
		return nil, fmt.Errorf("memories have more than %d bytes", maxDecoded)
	}
	memories := map[probe.ID]engine.Memory{}
	for len(plain) > 0 {
		id := probe.ID{Kind: probe.Kind(plain[0])}
		var parts [3]string
		plain = plain[1:]
		for i := range parts {
			n, size := binary.Uvarint(plain)
			if size <= 0 || n > uint64(len(plain)-size) {
				return nil, errTruncated
			}
			parts[i], plain = string(plain[size:size+int(n)]), plain[size+int(n):]
		}
		id.Target, id.Name = parts[0], parts[1]
		var m engine.Memory
		if err := m.UnmarshalBinary([]byte(parts[2])); err != nil {
			return nil, fmt.Errorf("probe %q: %w", id, err)
		}
		memories[id] = m
	}
	return memories, nil
}
