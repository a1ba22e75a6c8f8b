package httpprobe_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

func TestAWrongFieldIsNamed(t *testing.T) {
	long := strings.Repeat("x", 20000)
	header := func(name string, values ...string) httpprobe.Config {
		return httpprobe.Config{Port: "80", Headers: map[string][]string{name: values}}
	}
	tests := map[string]struct {
		config httpprobe.Config
		field  string
	}{
		"no port":                                   {httpprobe.Config{}, "port"},
		"port 0":                                    {httpprobe.Config{Port: "0"}, "port"},
		"port 65536":                                {httpprobe.Config{Port: "65536"}, "port"},
		"a port and a unix socket":                  {httpprobe.Config{Port: "80", UnixSocket: "/s"}, "port"},
		"a source and a unix socket":                {httpprobe.Config{SourceAddress: "127.0.0.1", UnixSocket: "/s"}, "source_address"},
		"a long unix socket":                        {httpprobe.Config{UnixSocket: "/" + long}, "unix_socket"},
		"all redirects of a unix socket":            {httpprobe.Config{UnixSocket: "/s", Redirects: "all"}, "redirects"},
		"a host in brackets":                        {httpprobe.Config{Port: "80", Host: "[::1]"}, "host"},
		"a host with a port":                        {httpprobe.Config{Port: "80", Host: "shop:80"}, "host"},
		"a URL as the host":                         {httpprobe.Config{Port: "80", Host: "http://shop"}, "host"},
		"a host with a space":                       {httpprobe.Config{Port: "80", Host: "my shop"}, "host"},
		"a host of dots":                            {httpprobe.Config{Port: "80", Host: "a..b"}, "host"},
		"a long host":                               {httpprobe.Config{Port: "80", Host: long}, "host"},
		"the host of no machine":                    {httpprobe.Config{Port: "80", Host: "::"}, "host"},
		"a source that is a name":                   {httpprobe.Config{Port: "80", SourceAddress: "eth0"}, "source_address"},
		"an unknown family":                         {httpprobe.Config{Port: "80", IPFamily: "ip4"}, "ip_family"},
		"most addresses":                            {httpprobe.Config{Port: "80", Addresses: "most"}, "addresses"},
		"all addresses, one kept":                   {httpprobe.Config{Port: "80", Addresses: "all", ReuseConnection: true}, "addresses"},
		"all addresses of a unix socket":            {httpprobe.Config{UnixSocket: "/s", Addresses: "all"}, "addresses"},
		"an unknown scheme":                         {httpprobe.Config{Port: "80", Scheme: "ftp"}, "scheme"},
		"tls without a scheme":                      {httpprobe.Config{Port: "80", TLS: &httpprobe.TLS{}}, "scheme"},
		"a method that is none":                     {httpprobe.Config{Port: "80", Method: "GET /"}, "method"},
		"keepalive without reuse":                   {httpprobe.Config{Port: "80", KeepAlive: &httpprobe.KeepAlive{}}, "keepalive"},
		"keepalive of a unix socket":                {httpprobe.Config{UnixSocket: "/s", ReuseConnection: true, KeepAlive: &httpprobe.KeepAlive{}}, "keepalive"},
		"half a second between packets":             {httpprobe.Config{Port: "80", ReuseConnection: true, KeepAlive: &httpprobe.KeepAlive{Interval: 1500 * time.Millisecond}}, "keepalive.interval"},
		"no packets at all":                         {httpprobe.Config{Port: "80", ReuseConnection: true, KeepAlive: &httpprobe.KeepAlive{Count: 200}}, "keepalive.count"},
		"fresh without reuse":                       {httpprobe.Config{Port: "80", FreshEvery: 5}, "fresh_every"},
		"a validity of kept connections":            {httpprobe.Config{Port: "80", Scheme: "https", TLS: &httpprobe.TLS{MinValidity: 1}, ReuseConnection: true}, "tls.min_validity"},
		"connect":                                   {httpprobe.Config{Port: "80", Method: "connect"}, "method"},
		"head with an expected body":                {httpprobe.Config{Port: "80", Method: "HEAD", BodyRegex: "x"}, "method"},
		"a status that is none":                     {httpprobe.Config{Port: "80", Status: []string{"200", "ok"}}, "status"},
		"a status range upside down":                {httpprobe.Config{Port: "80", Status: []string{"299-200"}}, "status"},
		"a status below 100":                        {httpprobe.Config{Port: "80", Status: []string{"99"}}, "status"},
		"a status above 599":                        {httpprobe.Config{Port: "80", Status: []string{"500-600"}}, "status"},
		"no status at all":                          {httpprobe.Config{Port: "80", Status: []string{}}, "status"},
		"a text of no body":                         {httpprobe.Config{Port: "80", Status: []string{"204", "304"}, BodyContains: "x"}, "body_contains"},
		"JSON of no body":                           {httpprobe.Config{Port: "80", Status: []string{"204-204"}, JSONRegex: map[string]string{"a": "1"}}, "json_regex"},
		"a text that must be and not be":            {httpprobe.Config{Port: "80", BodyContains: "all ok", BodyNotContains: "ok"}, "body_not_contains"},
		"a header, absent and equal":                {httpprobe.Config{Port: "80", HeaderAbsent: []string{"x-a"}, HeaderEquals: map[string]string{"X-A": "1"}}, "header_absent"},
		"a header, absent and matching":             {httpprobe.Config{Port: "80", HeaderAbsent: []string{"x-a"}, HeaderRegex: map[string]string{"X-A": "1"}}, "header_absent"},
		"an open status range":                      {httpprobe.Config{Port: "80", Status: []string{"200-"}}, "status"},
		"an unknown kind of redirects":              {httpprobe.Config{Port: "80", Redirects: "some"}, "redirects"},
		"a regex that is none":                      {httpprobe.Config{Port: "80", BodyRegex: "("}, "body_regex"},
		"a forbidden regex that is none":            {httpprobe.Config{Port: "80", BodyNotRegex: "("}, "body_not_regex"},
		"a forbidden text that is long":             {httpprobe.Config{Port: "80", BodyNotContains: long, MaxBody: 1 << 10}, "body_not_contains"},
		"head with JSON":                            {httpprobe.Config{Port: "80", Method: "HEAD", JSONEquals: map[string]string{"a": "1"}}, "method"},
		"a body that is too long":                   {httpprobe.Config{Port: "80", MaxBody: 1<<20 + 1}, "max_body"},
		"a body below 0":                            {httpprobe.Config{Port: "80", MaxBody: -1}, "max_body"},
		"a path that is none":                       {httpprobe.Config{Port: "80", JSONEquals: map[string]string{"a..b": "1"}}, "json_equals"},
		"a path to match that is none":              {httpprobe.Config{Port: "80", JSONRegex: map[string]string{"a[": "1"}}, "json_regex"},
		"a regex of JSON that is none":              {httpprobe.Config{Port: "80", JSONRegex: map[string]string{"a": "("}}, "json_regex"},
		"a header's name with a space":              {httpprobe.Config{Port: "80", HeaderAbsent: []string{"X A"}}, "header_absent"},
		"a header's regex that is none":             {httpprobe.Config{Port: "80", HeaderNotRegex: map[string]string{"A": "("}}, "header_not_regex"},
		"an expected text that is long":             {httpprobe.Config{Port: "80", BodyContains: long, MaxBody: 1 << 10}, "body_contains"},
		"a header without a name":                   {header("", "x"), "headers"},
		"a header with a space":                     {header("X A", "x"), "headers"},
		"a header with a line end":                  {header("X-A", "x\r\nX-B: y"), "headers"},
		"a host header that is no host":             {header("host", "a b"), "headers"},
		"a content length":                          {header("content-length", "3"), "headers"},
		"a transfer encoding":                       {header("Transfer-Encoding", "chunked"), "headers"},
		"an unknown compatibility":                  {httpprobe.Config{Port: "80", Compatibility: 9}, "compatibility"},
		"an unreadable file":                        {httpprobe.Config{Port: "80", Scheme: "https", TLS: &httpprobe.TLS{CAFile: "/nowhere"}}, "tls.ca_file"},
		"a source of another family than the proxy": {httpprobe.Config{Port: "80", SourceAddress: "::1", Proxy: &httpprobe.Proxy{URL: "http://10.0.0.1:3128"}}, "source_address"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := httpprobe.New(test.config)
			var wrong *probe.FieldError
			if !errors.As(err, &wrong) || wrong.Field != test.field {
				t.Errorf("got the error %v, want one for the field %s", err, test.field)
			}
		})
	}
}

func TestAnAttemptIsMadeAtAllAddressesOfAName(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":")+1:]
	h, err := httpprobe.New(httpprobe.Config{Host: "localhost", Port: port, IPFamily: "4", Addresses: "all"})
	if err != nil {
		t.Fatal(err)
	}
	r := h.Probe(t.Context(), probe.Target{Name: "web"})
	if want := "127.0.0.1 failure: http.status: "; r.Outcome != probe.Failure || r.Reason != probe.ReasonHTTPStatus || !strings.HasPrefix(r.Detail, want) || r.HTTPStatus != 404 {
		t.Errorf("got %+v", r)
	}
}
