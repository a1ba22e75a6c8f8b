package httpprobe

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sonde-probe/sonde/probe"
)

// maxEncoded is how many bytes of a compressed body are read beyond the maximum length of the decoded body. Compression makes an
// incompressible body only slightly longer, while an invalid body may be endless.
const maxEncoded = 64 << 10

// encodingError describes why a body cannot be decoded.
type encodingError struct {
	outcome probe.Outcome
	text    string
}

// Error implements error.
func (e *encodingError) Error() string { return e.text }

// read returns the body of a response, up to maxBody. If an assertion needs it, its Content-Encoding and charset are decoded. The
// error is that of the connection, or an *encodingError.
func (a *assertions) read(r *http.Response) (text, error) {
	if !a.readBody() {
		_, err := io.Copy(io.Discard, io.LimitReader(r.Body, int64(a.maxBody)))
		return text{isWhole: true}, err
	}
	from, err := decoder(r, int64(a.maxBody)+maxEncoded)
	if err != nil {
		return text{}, err
	}
	body, err := io.ReadAll(io.LimitReader(from, int64(a.maxBody)+1)) // one byte more, to detect a longer body
	if err != nil {
		return text{}, wrongEncoding(err)
	}
	return textOf(body[:min(len(body), a.maxBody)], len(body) <= a.maxBody, r.Header.Get("Content-Type")), nil
}

// decoder returns a reader that decodes the Content-Encoding of a body, and reads at most most bytes of the encoded body.
func decoder(r *http.Response, most int64) (io.Reader, error) {
	coding := strings.ToLower(strings.TrimSpace(strings.Join(r.Header["Content-Encoding"], ",")))
	if coding == "" || coding == "identity" {
		return r.Body, nil
	}
	raw := bufio.NewReader(http.MaxBytesReader(nil, r.Body, most))
	first, err := raw.Peek(2)
	if len(first) == 0 { // also the case for HEAD
		return raw, nil
	}
	switch coding {
	case "gzip", "x-gzip":
		var decoded *gzip.Reader
		if decoded, err = gzip.NewReader(raw); err == nil {
			return decoded, nil
		}
		return nil, wrongEncoding(err)
	case "deflate": // in zlib's format (RFC 9110, section 8.4.1.2), or without its header, as many servers send it
		if err == nil && first[0]&0x0f == 8 && (uint(first[0])<<8|uint(first[1]))%31 == 0 {
			decoded, err := zlib.NewReader(raw)
			return decoded, wrongEncoding(err)
		}
		return flate.NewReader(raw), nil
	}
	return nil, &encodingError{probe.Unknown, fmt.Sprintf("its body is compressed with %.40q, which is not supported: request gzip or identity in the header Accept-Encoding", coding)}
}

// wrongEncoding returns the error of a decoder, as an *encodingError if the body caused it.
func wrongEncoding(err error) error {
	var corrupt flate.CorruptInputError
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return &encodingError{probe.Unknown, "its compressed body is longer than the limit"}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum),
		errors.Is(err, zlib.ErrDictionary), errors.As(err, &corrupt):
		return &encodingError{probe.Failure, fmt.Sprintf("its body does not match its Content-Encoding: %v", err)}
	}
	return err
}
