package fleet

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// The memories of a shard as bytes: a version, and compressed by flate an entry for each probe and each unit
// with a driver, in the order of targets:
//
//	uint8   what: the kind of a probe, or whatRestart
//	string  target, name, value: each a uvarint and so many bytes
//
// An engine leaves out the entries that it does not know, which a later release may write.
const version = 1

// whatRestart marks an entry whose value is a restart.Memory in JSON, and whose name is empty.
const whatRestart = 16

// maxDecoded bounds the memories of a shard before they are compressed.
const maxDecoded = 8 << 20

var errTruncated = errors.New("memories are truncated")

// memories are what the next owner of a shard has to remember.
type memories struct {
	probes   map[probe.ID]engine.Memory
	restarts map[string]restart.Memory // by target
}

// entry is one of the memories as bytes.
type entry struct {
	what         byte
	target, name string
	value        []byte
}

// encode returns memories as bytes, which are the same for equal ones.
func (m memories) encode() ([]byte, error) {
	all := make([]entry, 0, len(m.probes)+len(m.restarts))
	for id, memory := range m.probes {
		value, err := memory.MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("probe %q: %w", id, err)
		}
		all = append(all, entry{byte(id.Kind), id.Target, id.Name, value})
	}
	for target, memory := range m.restarts {
		value, err := json.Marshal(memory)
		if err != nil {
			return nil, fmt.Errorf("restarts of %q: %w", target, err)
		}
		all = append(all, entry{whatRestart, target, "", value})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.what, b.what), cmp.Compare(a.name, b.name))
	})
	var plain []byte
	for _, e := range all {
		plain = append(plain, e.what)
		for _, s := range [][]byte{[]byte(e.target), []byte(e.name), e.value} {
			plain = binary.AppendUvarint(plain, uint64(len(s)))
			plain = append(plain, s...)
		}
	}
	return compress(plain)
}

// compress returns plain entries with their version.
func compress(plain []byte) ([]byte, error) {
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

// decode returns the memories that encode has made bytes of, none after an error.
func decode(b []byte) (memories, error) {
	plain, err := decompress(b)
	if err != nil {
		return memories{}, err
	}
	m := memories{map[probe.ID]engine.Memory{}, map[string]restart.Memory{}}
	for len(plain) > 0 {
		e := entry{what: plain[0]}
		var parts [3][]byte
		plain = plain[1:]
		for i := range parts {
			n, size := binary.Uvarint(plain)
			if size <= 0 || n > uint64(len(plain)-size) {
				return memories{}, errTruncated
			}
			parts[i], plain = plain[size:size+int(n)], plain[size+int(n):]
		}
		e.target, e.name, e.value = string(parts[0]), string(parts[1]), parts[2]
		if err := m.add(e); err != nil {
			return memories{}, err
		}
	}
	return m, nil
}

// add decodes an entry, unless it is of a later release.
func (m memories) add(e entry) error {
	switch {
	case e.what == whatRestart:
		var memory restart.Memory
		if err := json.Unmarshal(e.value, &memory); err != nil {
			return fmt.Errorf("restarts of %q: %w", e.target, err)
		}
		m.restarts[e.target] = memory
	case e.what < whatRestart:
		id := probe.ID{Target: e.target, Kind: probe.Kind(e.what), Name: e.name}
		var memory engine.Memory
		if err := memory.UnmarshalBinary(e.value); err != nil {
			return fmt.Errorf("probe %q: %w", id, err)
		}
		m.probes[id] = memory
	}
	return nil
}

// decompress returns the plain entries of bytes.
func decompress(b []byte) ([]byte, error) {
	switch {
	case len(b) == 0:
		return nil, errTruncated
	case b[0] != version:
		return nil, fmt.Errorf("memories have version %d, this release has version %d", b[0], version)
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b[1:])), maxDecoded+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("memories: %w", err)
	case len(plain) > maxDecoded:
		return nil, fmt.Errorf("memories have more than %d bytes", maxDecoded)
	}
	return plain, nil
}
