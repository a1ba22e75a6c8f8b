package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
)

// The kinds of a frame in a multiplexed stream.
const (
	frameStdin  = 0 // treated like stdout
	frameStdout = 1
	frameStderr = 2
	frameSystem = 3 // an error of the runtime
)

// demultiplex writes the content of the frames to stdout and stderr. It returns an error if the runtime reports one in
// a frame.
func demultiplex(r io.Reader, stdout, stderr io.Writer) error {
	var header [8]byte // kind, three zeros, length
	for {
		if _, err := io.ReadFull(r, header[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		to, length := stdout, int64(binary.BigEndian.Uint32(header[4:]))
		switch header[0] {
		case frameStdin, frameStdout:
		case frameStderr:
			to = stderr
		case frameSystem:
			text, _ := io.ReadAll(io.LimitReader(r, min(length, maxMessage)))
			return errors.New(oneLine(string(text)))
		default:
			return fmt.Errorf("invalid output stream: unknown frame type %d", header[0])
		}
		if _, err := io.CopyN(to, r, length); err != nil {
			return unexpected(err)
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Limits of Logs.
const (
	logLines   = 50
	maxLogs    = 1 << 20 // bytes read
	logTimeout = 3 * time.Second
)

// Logs returns the end of a container's output, at most the given number of bytes.
func (c *Client) Logs(ctx context.Context, container Container, most int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	r := request{
		method: http.MethodGet, path: "/containers/" + url.PathEscape(container.ID) + "/logs",
		query: url.Values{"stdout": {"1"}, "stderr": {"1"}, "tail": {strconv.Itoa(logLines)}},
	}
	res, err := c.sendVersioned(ctx, &c.long, r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	last := &command.Output{Max: most, Last: true}
	from := io.LimitReader(res.Body, maxLogs)
	if container.TTY {
		_, err = last.ReadFrom(from)
	} else {
		err = demultiplex(from, last, last)
	}
	if text := last.String(); err == nil || text != "" {
		return text, nil
	}
	return "", c.failed(ctx, r.op(), err)
}
