package main

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

// Limits of replies, in bytes.
const (
	maxLine = 1 << 10
	maxBulk = 64 << 10 // INFO replication of 500 replicas
)

// appendCommand appends a command.
func appendCommand(b []byte, words ...string) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(words)), 10), "\r\n"...)
	for _, w := range words {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(w)), 10), "\r\n"...)
		b = append(append(b, w...), "\r\n"...)
	}
	return b
}

var (
	errLong = errors.New("a line of the answer is too long")
	errBulk = errors.New("the answer is longer than it may be")
)

// readReply reads a reply in RESP2, the initial protocol of a connection. It returns an error reply as an
// error.
func readReply(in *bufio.Reader) (string, error) {
	line, err := readLine(in)
	if err != nil {
		return "", err
	}
	kind, rest := line[:min(len(line), 1)], line[min(len(line), 1):]
	switch kind {
	case "+":
		return rest, nil
	case "-":
		return "", guest.Problem(reasonOf(rest), "the server says "+quote(rest))
	case "$":
		return readBulk(in, rest)
	}
	return "", errors.New("the server does not speak Redis's protocol: it says " + quote(line))
}

func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", errLong
	}
	return strings.TrimRight(string(line), "\r\n"), err
}

func readBulk(in *bufio.Reader, length string) (string, error) {
	n, err := strconv.ParseUint(length, 10, 31)
	if err != nil {
		return "", errors.New("the length of the answer is " + quote(length))
	}
	if n > maxBulk {
		return "", errBulk
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(in, b); err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// quote quotes and truncates untrusted text for the detail.
func quote(s string) string { return strconv.QuoteToASCII(s[:min(len(s), 200)]) }
