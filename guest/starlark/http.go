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

	"go.starlark.net/lib/json"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// httpModule makes requests of HTTP/1.1, one on each connection. It is much smaller than
// net/http, which would double the size of this plugin and the start of its instances.
// Redirects are not followed.
var httpModule = &starlarkstruct.Module{Name: "http", Members: starlark.StringDict{
	"get":     starlark.NewBuiltin("get", httpGet),
	"post":    starlark.NewBuiltin("post", httpPost),
	"request": starlark.NewBuiltin("request", httpRequest),
}}

// The reasons of the built-in handler http.
const (
	reasonProtocol = "http.protocol" // the response is not HTTP
	reasonBody     = "http.body"     // the body could not be read to its end
)

// Bounds of a response, in bytes.
const (
	maxHeader = 64 << 10
	maxBody   = 1 << 20
)

func httpGet(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return httpDo(thread, "get", &request{method: "GET"}, args, kwargs)
}

func httpPost(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	return httpDo(thread, "post", &request{method: "POST"}, args, kwargs)
}

func httpRequest(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
	r := &request{}
	return httpDo(thread, "request", r, args, kwargs, "method", &r.method)
}

// request is a request, as a script asks for it.
type request struct {
	method, url string
	port        starlark.Value
	tls         bool
	headers     *starlark.Dict
	body        starlark.Value
	tlsArgs

	// From the URL and the port.
	address, hostname, path string
}

// httpDo reads the arguments, which begin with those in first, and makes a request.
func httpDo(thread *starlark.Thread, function string, r *request, args starlark.Tuple, kwargs []starlark.Tuple, first ...any) (starlark.Value, error) {
	t, ok := thread.Local(targetKey).(*target)
	if !ok || t == nil {
		return nil, fmt.Errorf("%s: requests can be made in attempt only", function)
	}
	r.tlsArgs = newTLSArgs()
	pairs := append(first, "url", &r.url, "port?", &r.port, "headers?", &r.headers, "body?", &r.body, "tls?", &r.tls)
	if err := starlark.UnpackArgs(function, args, kwargs, r.pairs(pairs...)...); err != nil {
		return nil, err
	}
	if err := r.resolve(t); err != nil {
		return nil, fmt.Errorf("%s: %w", function, err)
	}
	text, err := r.text(function)
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
	if _, err := c.Conn.Write(text); err != nil {
		return nil, &targetError{reasonProtocol, err}
	}
	return readResponse(c.in, r.method)
}

// resolve sets where to connect and what to ask for: url is a path of the target, or
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

// portOf returns the port of the target: a number, a name, or that of the handler block.
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

// text returns the request as it is sent.
func (r *request) text(function string) ([]byte, error) {
	var body []byte
	var err error
	if r.body != nil && r.body != starlark.None {
		if body, err = bytesOf(function, r.body); err != nil {
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
				return nil, fmt.Errorf("%s: headers must be a dict of strings", function)
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
		return nil, fmt.Errorf("%s: method, url and headers must not contain white space or line ends", function)
	}
	return append(append(b.Bytes(), "\r\n"...), body...), nil
}

// readResponse reads a response, without those of status 1xx that come before.
func readResponse(in *bufio.Reader, method string) (starlark.Value, error) {
	left := maxHeader
	for range 5 {
		status, header, err := readHead(in, &left)
		if err != nil {
			return nil, &targetError{reasonProtocol, fmt.Errorf("response: %w", unexpected(err))}
		}
		if status < 200 {
			continue
		}
		body, err := readBody(in, method, status, header)
		if err != nil {
			return nil, &targetError{reasonBody, fmt.Errorf("body: %w", err)}
		}
		return responseOf(status, header, body), nil
	}
	return nil, &targetError{reasonProtocol, errors.New("response: too many of status 1xx")}
}

// readHead reads the status line and the header, whose names are in lower case.
func readHead(in *bufio.Reader, left *int) (status int, header map[string]string, err error) {
	line, err := headLine(in, left)
	if err != nil {
		return 0, nil, err
	}
	protocol, rest, _ := strings.Cut(line, " ")
	number, _, _ := strings.Cut(rest, " ")
	status, err = strconv.Atoi(number)
	if err != nil || status < 100 || status > 999 || !strings.HasPrefix(protocol, "HTTP/1.") {
		return 0, nil, fmt.Errorf("%.60q is not a status line of HTTP/1.1", line)
	}
	header = make(map[string]string)
	for {
		line, err := headLine(in, left)
		if err != nil || line == "" {
			return status, header, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return 0, nil, fmt.Errorf("%.60q is not a header field", line)
		}
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		if before, twice := header[name]; twice {
			value = before + ", " + value
		}
		header[name] = value
	}
}

// headLine reads a line without its end; left is how many bytes the header may still have.
func headLine(in *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		b, err := in.ReadByte()
		switch {
		case err != nil:
			return "", err
		case b == '\n':
			return strings.TrimSuffix(string(line), "\r"), nil
		case *left == 0:
			return "", fmt.Errorf("the header has more than %d bytes", maxHeader)
		}
		*left--
		line = append(line, b)
	}
}

// readBody reads the body: as long as the header says, or up to the end of the connection.
func readBody(in *bufio.Reader, method string, status int, header map[string]string) ([]byte, error) {
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
		return readBytes(in, n)
	}
	b, err := io.ReadAll(io.LimitReader(in, maxBody+1))
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

// readChunks reads a body in chunks, without the trailer.
func readChunks(in *bufio.Reader) ([]byte, error) {
	var body []byte
	left := maxHeader
	for {
		line, err := headLine(in, &left)
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
		chunk, err := readBytes(in, n)
		if err != nil {
			return nil, err
		}
		body = append(body, chunk...)
		if _, err := headLine(in, &left); err != nil { // the end of the chunk
			return nil, unexpected(err)
		}
	}
}

// responseOf returns the value of a response: r.status, r.headers, r.body and r.json().
func responseOf(status int, header map[string]string, body []byte) starlark.Value {
	decode := func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		if err := starlark.UnpackArgs("json", args, kwargs); err != nil {
			return nil, err
		}
		v, err := starlark.Call(thread, json.Module.Members["decode"], starlark.Tuple{starlark.String(body)}, nil)
		if err != nil {
			return nil, &targetError{reasonBody, err}
		}
		return v, nil
	}
	return starlarkstruct.FromStringDict(starlark.String("response"), starlark.StringDict{
		"status":  starlark.MakeInt(status),
		"headers": dictOf(header, func(s string) starlark.Value { return starlark.String(s) }),
		"body":    starlark.String(body),
		"json":    starlark.NewBuiltin("json", decode),
	})
}
