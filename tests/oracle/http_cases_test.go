package oracle

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

func statusCases() (cases []httpCase) {
	for _, n := range []int{200, 201, 202, 203, 204, 205, 206, 207, 226, 299, 300, 304, 305, 306, 310, 399, 400, 401, 403, 404, 405, 408, 410, 418, 429, 451, 499, 500, 501, 502, 503, 504, 599, 600, 700, 999} {
		cases = append(cases, httpCase{name: fmt.Sprintf("status %d", n), path: fmt.Sprintf("/status/%d", n)})
	}
	return cases
}

func redirectCases() (cases []httpCase) {
	for _, n := range []int{301, 302, 303, 307, 308} {
		for name, location := range map[string]string{
			"a good path": "/ok", "a bad path": "/status/500", "another host": "http://elsewhere.invalid/", "this machine by name": "http://localhost:PORT/ok",
		} {
			cases = append(cases, httpCase{name: fmt.Sprintf("redirect %d to %s", n, name), path: to(n, location)})
		}
	}
	return append(cases,
		httpCase{name: "redirect without a location", path: "/redirect/302"},
		httpCase{name: "redirect 301 without a location", path: "/redirect/301"},
		httpCase{name: "redirect to a relative path", path: to(302, "../ok")},
		httpCase{name: "redirect to a query", path: to(302, "?x=1")},
		httpCase{name: "redirect to the same host in full", path: to(302, "http://127.0.0.1:PORT/ok")},
		httpCase{name: "redirect to the same host without a scheme", path: to(302, "//127.0.0.1:PORT/ok")},
		httpCase{name: "redirect to a closed port", path: to(302, "http://127.0.0.1:1/ok")},
		httpCase{name: "redirect to https where http is spoken", path: to(302, "https://127.0.0.1:PORT/ok")},
		httpCase{name: "redirect to what cannot be parsed", path: to(302, "/%zz")},
		httpCase{name: "redirect to another host with a body", path: to(302, "http://elsewhere.invalid/") + "&body=moved"},
		httpCase{name: "redirect to another host with a long body", path: to(302, "http://elsewhere.invalid/") + "&body=" + strings.Repeat("x", 11000)},
		httpCase{name: "redirect to the host in upper case", path: to(302, "http://LOCALHOST:PORT/ok"), host: "localhost", wanted: "K94"},
		httpCase{name: "redirect from a name to its address", path: to(302, "http://127.0.0.1:PORT/ok"), host: "localhost"},
		httpCase{name: "redirect with a user", path: to(302, "http://user:secret@127.0.0.1:PORT/ok")},
		httpCase{name: "one hop", path: "/hop/1"},
		httpCase{name: "nine hops", path: "/hop/9"},
		httpCase{name: "ten hops", path: "/hop/10"},
		httpCase{name: "fifty hops", path: "/hop/50"},
		httpCase{name: "redirect that keeps a given host", path: to(302, "/ok"), headers: header("Host", "example.org")},
		httpCase{name: "redirect in full that forgets a given host", path: to(302, "http://127.0.0.1:PORT/ok"), headers: header("Host", "example.org")},
		httpCase{name: "redirect that keeps headers", path: to(307, "/ok"), headers: header("X-A", "1", "Authorization", "Bearer x", "Cookie", "a=b")},
	)
}

// opaque are paths that parse as opaque URLs.
var opaque = []string{"a:b", "mailto:x", "http:x"}

func pathCases() (cases []httpCase) {
	for _, path := range opaque {
		cases = append(cases, httpCase{name: fmt.Sprintf("path %q", path), path: path, wanted: "K86"})
	}
	for _, path := range []string{
		"", "/", "x", "/x", "/x/", "/x?y", "/x?y=z&y=w", "?y", "/x#part", "/x%20y", "/x y", "/%zz", "%zz", "//foo/bar", "///x", "/a/../b", "/a/./b",
		"http://other.invalid/x", "https://other.invalid:1/x?y", "//user:pw@other.invalid/x", "http://user@h/", "/ü", "/%C3%BC", "/a;b", "/a:b", "1:2",
		"/a|b", "/\"quoted\"", "/a\\b", "/x?a b", "/x?%zz", "/x?ü", "/+", "/%2F", "/a%2Fb", "/a//b", "/:x", "*", "http:/x", "/x?#y", "/[::1]", "/<x>", "/x\ty", "/x\ny", "/\x00",
	} {
		cases = append(cases, httpCase{name: fmt.Sprintf("path %q", path), path: path})
	}
	return cases
}

func header(pairs ...string) (headers []v1.HTTPHeader) {
	for i := 0; i < len(pairs); i += 2 {
		headers = append(headers, v1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
	}
	return headers
}

func headerCases() []httpCase {
	return []httpCase{
		{name: "no headers"},
		{name: "one header", headers: header("X-Test", "1")},
		{name: "a header in lower case", headers: header("x-test", "1")},
		{name: "a header twice", headers: header("X-Test", "1", "X-Test", "2")},
		{name: "a header twice in two cases", headers: header("X-Test", "1", "x-test", "2")},
		{name: "an empty header", headers: header("X-Test", "")},
		{name: "a header of spaces", headers: header("X-Test", "  1  ")},
		{name: "a header in UTF-8", headers: header("X-Test", "ü")},
		{name: "a user agent", headers: header("User-Agent", "me")},
		{name: "a user agent in lower case", headers: header("user-agent", "me")},
		{name: "no user agent", headers: header("User-Agent", "")},
		{name: "accept", headers: header("Accept", "text/html")},
		{name: "accept twice", headers: header("Accept", "text/html", "accept", "text/plain")},
		{name: "no accept", headers: header("Accept", "")},
		{name: "accept encoding", headers: header("Accept-Encoding", "gzip")},
		{name: "no accept encoding", headers: header("Accept-Encoding", "")},
		{name: "a host", headers: header("Host", "example.org")},
		{name: "a host in lower case", headers: header("host", "example.org")},
		{name: "a host with a port", headers: header("Host", "example.org:8080")},
		{name: "two hosts", headers: header("Host", "a.example", "Host", "b.example")},
		{name: "no host", headers: header("Host", "")},
		{name: "authorization", headers: header("Authorization", "Basic dTpw")},
		{name: "connection keep-alive", headers: header("Connection", "keep-alive")},
		{name: "connection upgrade", headers: header("Connection", "Upgrade", "Upgrade", "websocket")},
		{name: "a cookie", headers: header("Cookie", "a=b; c=d")},
		{name: "a header that is none", headers: header("X Test", "1"), wanted: "K85"},
		{name: "a header with a line break", headers: header("X-Test", "1\r\nX-Other: 2"), wanted: "K85"},
		{name: "a header without a name", headers: header("", "1"), wanted: "K85"},
		{name: "a content length", headers: header("Content-Length", "5"), wanted: "K85"},
		{name: "a referer", headers: header("Referer", "http://example.org/")},
		{name: "forty headers", headers: header(manyHeaders(40)...)},
	}
}

func manyHeaders(n int) (pairs []string) {
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("X-%d", i), strings.Repeat("v", 200))
	}
	return pairs
}

func bodyCases() []httpCase {
	return []httpCase{
		{name: "no body", path: "/body/0"},
		{name: "a byte", path: "/body/1"},
		{name: "a body just below the bound", path: "/body/10239"},
		{name: "a body at the bound", path: "/body/10240"},
		{name: "a body just above the bound", path: "/body/10241"},
		{name: "a large body", path: "/body/1000000"},
		{name: "a body that stalls", path: "/stall/200", timeout: 1, mended: "K71"},
		{name: "a body that stalls after a 500", path: "/stall/500", timeout: 1, mended: "K71"},
		{name: "a body that stalls after a 302", path: "/stall/302", timeout: 1, mended: "K71"},
		{name: "a body that breaks off", path: "/short/200", mended: "K71"},
		{name: "a body that breaks off after a 503", path: "/short/503", mended: "K71"},
		{name: "a body that breaks off after a 404", path: "/short/404", mended: "K71"},
		{name: "a body that stalls below the bound", path: "/enough/10239", timeout: 1, mended: "K71"},
		{name: "a body that stalls at the bound", path: "/enough/10240", timeout: 1},
		{name: "a body that stalls above the bound", path: "/enough/20000", timeout: 1},
		{name: "a head that does not come", path: "/late", timeout: 1},
		{name: "hops that are in time", path: "/slowhop/2"},
		{name: "hops that are late together", path: "/slowhop/9", timeout: 1},
		{name: "a chunk that is none", path: raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), mended: "K71"},
		{name: "chunks that end early", path: raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), mended: "K71"},
		{name: "good chunks", path: raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "a body until the end", path: raw("HTTP/1.1 200 OK\r\n\r\nhello")},
		{name: "a body that says it is compressed", path: raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello")},
	}
}

func placeCases() []httpCase {
	return []httpCase{
		{name: "a port's name", port: "web"},
		{name: "a name that is none", port: "zzz"},
		{name: "a port's name in upper case", port: "WEB"},
		{name: "port 0", port: "0", wanted: "K110"},
		{name: "port -1", port: "-1", wanted: "K110"},
		{name: "port 65536", port: "65536", wanted: "K110"},
		{name: "no port", port: "-", wanted: "K110"},
		{name: "no server", server: noServer},
		{name: "a host that is not the address", host: "127.0.0.1", address: "192.0.2.1"},
		{name: "a name", host: "localhost"},
		{name: "a name in upper case", host: "LOCALHOST"},
		{name: "a name that does not exist", host: "nowhere.invalid"},
		{name: "a host with spaces", host: "a b", wanted: "K85"},
		{name: "a host with a path", host: "127.0.0.1/x", wanted: "K85"},
		{name: "an address in brackets", host: "[::1]", wanted: "K85"},
		{name: "another address of this machine", host: "127.0.0.2"},
		{name: "an IPv6 address", host: "::1"},
		{name: "no address", address: "none", wanted: "K112"},
	}
}

func tlsCases() []httpCase {
	return []httpCase{
		{name: "tls", server: secure},
		{name: "tls and a bad status", server: secure, path: "/status/500"},
		{name: "tls by name", server: secure, host: "localhost"},
		{name: "tls and a redirect", server: secure, path: to(302, "/ok")},
		{name: "tls and a redirect to http", server: secure, path: to(302, "http://127.0.0.1:PORT/ok")},
		{name: "tls and a body that breaks off", server: secure, path: "/short/200", mended: "K71"},
		{name: "http/2", server: modern},
		{name: "http/2 and a bad status", server: modern, path: "/status/404"},
		{name: "http/2 with headers", server: modern, headers: header("X-Test", "1", "Host", "example.org")},
		{name: "http/2 and a redirect", server: modern, path: to(302, "/ok")},
		{name: "http/2 and a body that breaks off", server: modern, path: "/short/200", mended: "K71"},
		{name: "http/2 and a large body", server: modern, path: "/body/100000"},
		{name: "http/2 and no answer", server: modern, path: "/late", timeout: 1},
		{name: "tls by name with another host", server: secure, host: "localhost", headers: header("Host", "example.org")},
		{name: "tls and a redirect to another name", server: secure, path: to(302, "https://localhost:PORT/ok")},
		{name: "tls 1.2", server: twelve},
		{name: "tls that asks for a certificate", server: asking},
		{name: "tls to a server that says nothing", server: mute, scheme: "HTTPS", timeout: 1},
		{name: "http to a server that says nothing", server: mute, scheme: "HTTP", timeout: 1},
		{name: "an old tls", server: old},
		{name: "http to a tls server", server: secure, scheme: "HTTP"},
		{name: "tls to an http server", server: plain, scheme: "HTTPS"},
	}
}

func oddCases() []httpCase {
	return []httpCase{
		{name: "no answer", path: raw("")},
		{name: "an answer that is not http", path: raw("220 mail.example ESMTP\r\n")},
		{name: "half a head", path: raw("HTTP/1.1 200 OK\r\nContent-")},
		{name: "a status that is none", path: raw("HTTP/1.1 -1 Bad\r\n\r\n")},
		{name: "a status of two digits", path: raw("HTTP/1.1 20 OK\r\n\r\n")},
		{name: "http/1.0", path: raw("HTTP/1.0 200 OK\r\n\r\nhello")},
		{name: "http/0.9", path: raw("hello")},
		{name: "a status of 100 and then 200", path: raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")},
		{name: "a status of 103 and then 500", path: raw("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")},
		{name: "a change of protocols", path: raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")},
		{name: "a head of 50 kilobytes", path: "/headers/50"},
		{name: "a head of 100 kilobytes", path: "/headers/100", wanted: "K92"},
		{name: "two content lengths", path: raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")},
	}
}
