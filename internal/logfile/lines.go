package logfile

import "bytes"

// maxUnfinished is the maximum length of a line that is kept until its end arrives, in bytes. A longer line is written in pieces,
// which may be interleaved with lines of another stream.
const maxUnfinished = 16 << 10

// Lines passes a stream to a File in whole lines, so that lines of several streams do not mix. It must be used by a single
// goroutine.
type Lines struct {
	File *File

	unfinished []byte
}

// Write processes the next bytes of the stream. It returns len(p) and no error.
func (l *Lines) Write(p []byte) (int, error) {
	whole := bytes.LastIndexByte(p, '\n') + 1
	if whole > 0 {
		lines := p[:whole]
		if len(l.unfinished) > 0 {
			lines = append(l.unfinished, lines...)
		}
		l.File.write(lines)
		l.unfinished = l.unfinished[:0]
	}
	l.unfinished = append(l.unfinished, p[whole:]...)
	if len(l.unfinished) > maxUnfinished {
		l.EndLine()
	}
	return len(p), nil
}

// Unfinished implements Liner.
func (l *Lines) Unfinished() bool { return len(l.unfinished) > 0 }

// EndLine implements Liner. The rest of the line may follow after lines of another stream.
func (l *Lines) EndLine() {
	l.File.write(l.unfinished)
	l.unfinished = l.unfinished[:0]
}
