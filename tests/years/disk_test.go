package years

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"
)

func (s *story) path() string { return filepath.Join(s.dir, "state") }

// readState returns the current state file.
func (s *story) readState() []byte {
	b, err := os.ReadFile(s.path())
	if err != nil {
		s.Fatal(err)
	}
	return b
}

// writeState replaces the state file.
func (s *story) writeState(b []byte) {
	if err := os.Remove(s.path()); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(s.path(), b, 0o600); err != nil {
		s.Fatal(err)
	}
}

// frame is the position of a frame in a state file: see package journal.
type frame struct{ from, to int }

// synced reports whether the frame was on disk before the engine continued: frames that only have the time are not synced.
func (f frame) synced() bool { return f.to-f.from > 12+24 }

// framesOf returns the frames of a state file.
func framesOf(b []byte) (frames []frame) {
	at := bytes.IndexByte(b, '\n') + 1
	for at > 0 && at+12 <= len(b) {
		to := at + 12 + int(binary.LittleEndian.Uint32(b[at:]))
		if to > len(b) {
			break
		}
		frames = append(frames, frame{at, to})
		at = to
	}
	return frames
}

// crash returns the contents of the disk after a crash: data that was written without being synced in the last seconds may be there
// in part, and so may the beginning of another write.
func (s *story) crash(b []byte) []byte {
	r := s.random
	frames := framesOf(b)
	switch r.IntN(4) {
	case 0:
	case 1: // a torn tail
		n := len(frames)
		for n > 1 && len(frames)-n < 3 && !frames[n-1].synced() {
			n--
		}
		if n < len(frames) {
			from := frames[n].from
			cut := from + r.part(len(b)-from+1)
			zeros := 0
			if r.chance(0.5) {
				zeros = len(b) - cut
			}
			b = append(bytes.Clone(b[:cut]), make([]byte, zeros)...)
			s.trace.add("", "torn", "unsynced bytes", 0)
		}
	case 2: // a write had begun
		if len(frames) > 0 {
			f := frames[r.part(len(frames))]
			b = append(bytes.Clone(b), b[f.from:f.from+r.part(f.to-f.from)]...)
			s.trace.add("", "torn", "unfinished write", 0)
		}
	case 3: // the write of another file had begun
		if err := os.WriteFile(s.path()+".new", b[:r.part(len(b)+1)], 0o600); err != nil {
			s.Fatal(err)
		}
	}
	return otherBoot(b)
}

// otherBoot returns a state file as written before a restart of the machine: then its age follows from the wall clock, which is the
// story's, and not from the time since boot.
func otherBoot(b []byte) []byte {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return b
	}
	b = bytes.Clone(b)
	for _, f := range framesOf(b) {
		content := b[f.from+12 : f.to]
		if at := bytes.Index(content, bytes.TrimSpace(id)); at >= 0 {
			content[at] ^= 1
			table := crc32.MakeTable(crc32.Castagnoli)
			binary.LittleEndian.PutUint32(b[f.from+4:], crc32.Checksum(content, table))
			binary.LittleEndian.PutUint32(b[f.from+8:], crc32.Checksum(b[f.from:f.from+8], table))
		}
	}
	return b
}

// awaitWrite waits, for at most a time, until the engine has just written a change, and returns the size of the file before that.
func (s *story) awaitWrite(most time.Duration) (before int64, ok bool) {
	info := func() os.FileInfo {
		i, err := os.Stat(s.path())
		if err != nil {
			s.Fatal(err)
		}
		return i
	}
	last := info()
	for end := time.Now().Add(most); time.Now().Before(end); {
		time.Sleep(time.Second - time.Since(s.life.began)%time.Second)
		s.settle()
		now := info()
		if grown := now.Size() - last.Size(); os.SameFile(now, last) && grown > 12+24 {
			return last.Size(), true
		}
		last = now
	}
	return 0, false
}
