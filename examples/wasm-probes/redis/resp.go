package main

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Limits of replies, in bytes.
const (
	maxLine = 1 << 10
	maxBulk = 64 << 10 // INFO replication of 500 replicas
)

// reply is one reply of RESP2, the initial protocol of a connection.
type reply struct {
	text   string
	failed bool // it is an error
}

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

// readReply reads a reply.
func readReply(in *bufio.Reader) (reply, error) {
	line, err := readLine(in)
	if err != nil {
		return reply{}, err
	}
	kind, rest := line[:min(len(line), 1)], line[min(len(line), 1):]
	switch kind {
	case "+":
		return reply{text: rest}, nil
	case "-":
		return reply{text: rest, failed: true}, nil
	case "$":
		text, err := readBulk(in, rest)
		return reply{text: text}, err
	}
	return reply{}, errors.New("the server does not speak Redis's protocol: it says " + quote(line))
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

// quote returns a text from outside for the detail, truncated.
func quote(s string) string { return strconv.QuoteToASCII(s[:min(len(s), 200)]) }
