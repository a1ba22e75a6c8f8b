package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// httpModule makes HTTP/1.1 requests, one per connection. It is much smaller than net/http, which
// would double the size of this plugin and the start-up time of its instances. Redirects are not
// followed.
var httpModule = &starlarkstruct.Module{Name: "http", Members: starlark.StringDict{
	"get":  function("get", func(a arguments) (starlark.Value, error) { return httpDo(a, &request{method: "GET"}) }),
	"post": function("post", func(a arguments) (starlark.Value, error) { return httpDo(a, &request{method: "POST"}) }),
	"request": function("request", func(a arguments) (starlark.Value, error) {
		r := &request{}
		return httpDo(a, r, "method", &r.method)
	}),
}}

// The reasons of the built-in handler http.
const (
	reasonProtocol = "http.protocol" // the response is not HTTP
	reasonBody     = "http.body"     // the body could not be read completely
)

// Bounds of a response, in bytes.
const (
	maxHeader = 64 << 10
	maxBody   = 1 << 20
)

// request is a request with the arguments of a script.
type request struct {
	method, url string
	port        starlark.Value
	tls         bool
	headers     *starlark.Dict
	body        starlark.Value
	tlsArgs

	// Derived from the URL and the port.
	address, hostname, path string
}

// httpDo reads the arguments, which start with those in first, and makes a request.
func httpDo(a arguments, r *request, first ...any) (starlark.Value, error) {
	r.tlsArgs = newTLSArgs()
	pairs := append(first, "url", &r.url, "port?", &r.port, "headers?", &r.headers, "body?", &r.body, "tls?", &r.tls)
	if err := a.read(r.pairs(pairs...)...); err != nil {
		return nil, err
	}
	t, ok := a.thread.Local(targetKey).(*target)
	if !ok || t == nil {
		return nil, a.errorf("requests can be made in attempt only")
	}
	if err := r.resolve(t); err != nil {
		return nil, a.errorf("%w", err)
	}
	text, err := r.text(a)
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if r.tls {
		network = "tls"
	}
	c, err := t.connect(network, r.address, r.tlsArgs)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Write(text); err != nil {
		return nil, &targetError{reasonProtocol, err}
	}
	return readResponse(c, r.method)
}

// resolve sets address, hostname and path from url, which is a path on the target or
// http://host:port/path.
func (r *request) resolve(t *target) error {
	scheme, rest, whole := strings.Cut(r.url, "://")
	switch {
	case !whole && !strings.HasPrefix(r.url, "/"):
		return fmt.Errorf("url is %q, must be a path such as /healthz, or http://host:port/path", r.url)
	case !whole:
		port, err := r.portOf(t)
		r.address, r.path = ":"+strconv.Itoa(port), r.url
		r.hostname = net.JoinHostPort(t.host.Address, strconv.Itoa(port))
		return err
	case r.port != nil:
		return errors.New("a url with a host takes no port")
	case scheme != "http" && scheme != "https":
		return fmt.Errorf("scheme %q is unknown: use http or https", scheme)
	}
	r.tls = scheme == "https"
	r.hostname, r.path, _ = strings.Cut(rest, "/")
	r.path = "/" + r.path
	r.address = r.hostname
	if _, _, err := net.SplitHostPort(r.hostname); err != nil {
		r.address = net.JoinHostPort(strings.Trim(r.hostname, "[]"), map[bool]string{false: "80", true: "443"}[r.tls])
	}
	return nil
}

// portOf returns the port of the target: the argument port, a number or a name, or the port of the
// handler block.
func (r *request) portOf(t *target) (int, error) {
	switch v := r.port.(type) {
	case nil:
		return t.portNumber(t.host.Settings.Port)
	case starlark.String:
		return t.portNumber(string(v))
	case starlark.Int:
		n, ok := v.Uint64()
		if !ok || n < 1 || n > 65535 {
			return 0, fmt.Errorf("port is %s, must be from 1 to 65535", v)
		}
		return int(n), nil
	}
	return 0, fmt.Errorf("port is %s, must be a number or a name", r.port.Type())
}

// text returns the request in wire format.
func (r *request) text(a arguments) ([]byte, error) {
	var body []byte
	var err error
	if r.body != nil && r.body != starlark.None {
		if body, err = a.bytes(r.body); err != nil {
			return nil, err
		}
	}
	fields := map[string]string{"Host": r.hostname, "User-Agent": "sonde", "Accept": "*/*", "Accept-Encoding": "identity"}
	if len(body) > 0 || r.method == "POST" || r.method == "PUT" || r.method == "PATCH" {
		fields["Content-Length"] = strconv.Itoa(len(body))
	}
	if r.headers != nil {
		for _, pair := range r.headers.Items() {
			name, isName := starlark.AsString(pair[0])
			value, isText := starlark.AsString(pair[1])
			if !isName || !isText {
				return nil, a.errorf("headers must be a dict of strings")
			}
			fields[textproto.CanonicalMIMEHeaderKey(name)] = value
		}
	}
	fields["Connection"] = "close"
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", r.method, r.path)
	for _, name := range namesOf(fields) {
		fmt.Fprintf(&b, "%s: %s\r\n", name, fields[name])
	}
	count := func(char string) int { return bytes.Count(b.Bytes(), []byte(char)) }
	if lines := len(fields) + 1; count("\n") != lines || count("\r") != lines || strings.ContainsAny(r.method+r.path, " \t") {
		return nil, a.errorf("method, url and headers must not contain white space or line ends")
	}
	return append(append(b.Bytes(), "\r\n"...), body...), nil
}

// readResponse reads a response, and skips preceding 1xx responses.
func readResponse(c io.Reader, method string) (starlark.Value, error) {
	left := &io.LimitedReader{R: c, N: maxHeader}
	in := textproto.NewReader(bufio.NewReaderSize(left, bufferSize))
	for range 5 {
		status, header, err := readHead(in)
		if err != nil && left.N == 0 {
			err = fmt.Errorf("the header has more than %d bytes", maxHeader)
		}
		if err != nil {
			return nil, &targetError{reasonProtocol, fmt.Errorf("response: %w", unexpected(err))}
		}
		if status < 200 {
			continue
		}
		left.N = maxHeader + maxBody
		body, err := readBody(in, method, status, header)
		if err != nil {
			return nil, &targetError{reasonBody, fmt.Errorf("body: %w", err)}
		}
		return responseOf(status, header, body), nil
	}
	return nil, &targetError{reasonProtocol, errors.New("response: too many 1xx responses")}
}

// readHead reads the status line and the header. It returns header names in lower case.
func readHead(in *textproto.Reader) (status int, header map[string]string, err error) {
	line, err := in.R.ReadString('\n')
	if err != nil {
		return 0, nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	protocol, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	status, err = strconv.Atoi(number)
	if err != nil || status < 100 || status > 999 || !strings.HasPrefix(protocol, "HTTP/1.") {
		return 0, nil, fmt.Errorf("%.60q is not a status line of HTTP/1.1", line)
	}
	fields, err := in.ReadMIMEHeader()
	header = make(map[string]string)
	for name, values := range fields {
		header[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return status, header, err
}

// readBody reads the body: as many bytes as the header declares, or up to the end of the
// connection.
func readBody(in *textproto.Reader, method string, status int, header map[string]string) ([]byte, error) {
	coding, length := header["transfer-encoding"], header["content-length"]
	switch {
	case method == "HEAD", status == 204, status == 304:
		return nil, nil
	case strings.EqualFold(coding, "chunked"):
		return readChunks(in)
	case coding != "":
		return nil, fmt.Errorf("transfer-encoding %.60q is not supported", coding)
	case length != "":
		n, err := strconv.ParseUint(length, 10, 63)
		if err != nil {
			return nil, fmt.Errorf("content-length is %.60q", length)
		}
		return readBytes(in.R, n)
	}
	b, err := io.ReadAll(io.LimitReader(in.R, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = errTooLong
	}
	return b, err
}

var errTooLong = fmt.Errorf("more than %d bytes", maxBody)

func readBytes(in *bufio.Reader, n uint64) ([]byte, error) {
	if n > maxBody {
		return nil, errTooLong
	}
	b := make([]byte, n)
	_, err := io.ReadFull(in, b)
	return b, unexpected(err)
}

// readChunks reads a chunked body, without the trailer.
func readChunks(in *textproto.Reader) (body []byte, err error) {
	for {
		line, err := in.ReadLine()
		if err != nil {
			return nil, unexpected(err)
		}
		size, _, _ := strings.Cut(line, ";")
		n, err := strconv.ParseUint(strings.TrimSpace(size), 16, 63)
		if err != nil {
			return nil, fmt.Errorf("%.60q is not the size of a chunk", line)
		}
		if n == 0 {
			return body, nil
		}
		if n > uint64(maxBody-len(body)) {
			return nil, errTooLong
		}
		chunk, err := readBytes(in.R, n)
		if err != nil {
			return nil, err
		}
		body = append(body, chunk...)
		if _, err := in.ReadLine(); err != nil { // the end of the chunk
			return nil, unexpected(err)
		}
	}
}

// compressed is a response with a compressed body, which scripts cannot decode. Access to the body is an error, because
// a script would search for text in compressed data.
type compressed struct {
	starlark.HasAttrs
	coding string
}

// Attr implements starlark.HasAttrs.
func (c compressed) Attr(name string) (starlark.Value, error) {
	if name == "body" || name == "json" {
		return nil, fmt.Errorf("body has the unsupported content encoding %.40q: the server ignored Accept-Encoding", c.coding)
	}
	return c.HasAttrs.Attr(name)
}

// responseOf returns the Starlark value of a response, with r.status, r.headers, r.body and
// r.json().
func responseOf(status int, header map[string]string, body []byte) starlark.Value {
	r := structOf(status, header, body)
	if coding := header["content-encoding"]; len(body) > 0 && coding != "" && !strings.EqualFold(coding, "identity") {
		return compressed{r, coding}
	}
	return r
}

func structOf(status int, header map[string]string, body []byte) *starlarkstruct.Struct {
	decode := func(a arguments) (starlark.Value, error) {
		if err := a.read(); err != nil {
			return nil, err
		}
		v, err := starlark.Call(a.thread, jsonModule.Members["decode"], starlark.Tuple{starlark.String(bytes.TrimPrefix(body, []byte("\ufeff")))}, nil) // a byte order mark is not part of the text
		if err != nil {
			return nil, &targetError{reasonBody, err}
		}
		return v, nil
	}
	return starlarkstruct.FromStringDict(starlark.String("response"), starlark.StringDict{
		"status":  starlark.MakeInt(status),
		"headers": dictOf(header, func(s string) starlark.Value { return starlark.String(s) }),
		"body":    starlark.String(body),
		"json":    function("json", decode),
	})
}
