package blackboximport_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api/blackbox"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/cmd/engine/internal/blackboximport"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
)

// parse parses the written configuration, without plugins.
func parse(text []byte) (*config.Config, config.Diagnostics) {
	icmp := config.Of(icmpprobe.New)
	icmp.NoPort = true
	handlers := map[string]config.Handler{"http": config.Of(httpprobe.New), "icmp": icmp, "tcp": config.Of(tcpprobe.New)}
	return config.Parse([]config.Source{{Name: "import.hcl", Bytes: text}}, config.Options{Handlers: handlers, CheckAllowed: blackbox.CheckAllowed})
}

func TestOnlyConfigurationsOfBlackboxExporterAreRecognized(t *testing.T) {
	for text, want := range map[string]bool{
		"modules: {a: {prober: http}}":           true,
		`{"modules": {"a": {}}}`:                 true,
		"modules: {}":                            false,
		"modules: [a]":                           false,
		"kind: Pod\nmodules: {a: {}}":            false,
		"apiVersion: v1\nmodules: {a: {}}":       false,
		"a: b":                                   false,
		"":                                       false,
		"# a\n---\nmodules: {a: {prober: http}}": true,
		"modules: {a: \t":                        false,
		strings.Repeat("#", blackboximport.MaxBytes) + "\na:": false,
	} {
		if got := blackboximport.Recognizes([]byte(text)); got != want {
			t.Errorf("%.60q is recognized: %v", text, got)
		}
	}
}

// Each field either reaches the handler or is named in a warning.
func TestEachFieldIsImportedOrTold(t *testing.T) {
	for text, want := range map[string]string{ // of a module: a line of the configuration, or a part of a warning
		"{prober: http, http: {method: get}}":                                              `method    = "GET"`,
		"{prober: http, http: {body: a}}":                                                  `body      = "a"`,
		"{prober: http, http: {no_follow_redirects: true}}":                                `redirects = "none"`,
		"{prober: http, http: {valid_status_codes: [200, 404]}}":                           `status    = ["200", "404"]`,
		"{prober: http, http: {tls_config: {server_name: b.example}}}":                     `server_name = "b.example"`,
		"{prober: http, http: {preferred_ip_protocol: ip4}}":                               `ip_family = "prefer_4"`,
		"{prober: http, http: {preferred_ip_protocol: ip4, ip_protocol_fallback: false}}":  `ip_family = "4"`,
		"{prober: tcp, tcp: {ip_protocol_fallback: false}}":                                `ip_family = "6"`,
		"{prober: grpc, grpc: {preferred_ip_protocol: ip4}}":                               "Ignored: grpc.preferred_ip_protocol, since all addresses of a name are tried",
		"{prober: http, http: {enable_http2: false}}":                                      `Connection = "close"`,
		"{prober: http, http: {source_ip_address: 127.0.0.1}}":                             `source_address = "127.0.0.1"`,
		"{prober: http, http: {basic_auth: {username: a, password: b}}}":                   `Authorization = "Basic YTpi"`,
		"{prober: http, http: {bearer_token: a}}":                                          `Authorization = "Bearer a"`,
		"{prober: http, http: {authorization: {credentials: a}}}":                          `Authorization = "Bearer a"`,
		"{prober: http, http: {authorization: {type: Token, credentials: a}}}":             `Authorization = "Token a"`,
		"{prober: http, http: {headers: {authorization: x}, bearer_token: a}}":             `authorization = "x"`,
		"{prober: http, tcp: {tls: true}}":                                                 "Ignored: tcp, which is of another prober",
		"{prober: tcp, tcp: {source_ip_address: 127.0.0.1}}":                               `source_address = "127.0.0.1"`,
		"{prober: tcp, tcp: {query_response: [{send: a}]}}":                                `send = "a\n"`,
		"{prober: tcp, tcp: {query_response: [{send: a}, {expect: b}]}}":                   `expect_regex = "(?m)b"`,
		"{prober: tcp, tcp: {query_response: [{expect: 'b$'}]}}":                           `expect_regex = "(?m)b\\r?\\n"`,
		"{prober: tcp, tcp: {query_response: [{expect: '\\B'}]}}":                          `query_response has \B`,
		"{prober: tcp, tcp: {query_response: [{send: a}, {send: b}]}}":                     "needs a script",
		"{prober: tcp, tcp: {query_response: [{expect: b, labels: [{name: c}]}]}}":         "Ignored: tcp.query_response[0].labels",
		"{prober: dns, dns: {query_name: a, transport_protocol: tcp}}":                     `network = "tcp"`,
		"{prober: dns, dns: {query_name: a, recursion_desired: false}}":                    `recursion = false`,
		"{prober: dns, dns: {query_name: a, dns_over_tls: true, transport_protocol: tcp}}": `port = 853`,
		"{prober: dns, dns: {query_name: a, query_type: A, valid_rcodes: [NXDOMAIN]}}":     `rcode = "NXDOMAIN"`,
		"{prober: grpc, grpc: {tls: true, tls_config: {server_name: a}}}":                  `server_name = "a"`,
		"{prober: grpc}":                 "needs a plugin",
		"{prober: icmp, icmp: {ttl: 5}}": "icmp { ttl = 5 }",
		"{prober: icmp, icmp: {payload_size: 4, dont_fragment: true}}":                                     "icmp { payload_size = 16 dont_fragment = true }",
		"{prober: icmp, icmp: {source_ip_address: 127.0.0.1, ttl: 0}}":                                     `icmp { source_address = "127.0.0.1" }`,
		"{prober: icmp, icmp: {preferred_ip_protocol: ip4}}":                                               `icmp { ip_family = "prefer_4" }`,
		"{prober: http, timeout: 1m}":                                                                      `timeout = "1m0s"`,
		"{}":                                                                                               `there is no prober ""`,
		"{prober: http, http: {fail_if_body_matches_regexp: [a]}}":                                         `body_not_regex = "a"`,
		"{prober: http, http: {fail_if_body_matches_regexp: [a, b]}}":                                      `body_not_regex = "(?:a)|(?:b)"`,
		"{prober: http, http: {fail_if_header_not_matches: [{header: a-b, regexp: c}]}}":                   `A-B = "c"`,
		"{prober: http, http: {fail_if_header_matches: [{header: a, regexp: c}, {header: A, regexp: d}]}}": `A = "(?:c)|(?:d)"`,
	} {
		doc, warnings, err := blackboximport.Write("blackbox.yml", []byte("modules: {m: "+text+"}"), blackboximport.Options{Allow: []string{"*"}, NoGRPC: errors.New("it needs a plugin")})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		told := strings.Join(strings.Fields(string(doc.Bytes())), " ") + strings.Join(warnings, "\n")
		if !strings.Contains(told, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%s lacks %q:\n%s\n%s", text, want, doc.Bytes(), warnings)
		}
		if strings.Contains(told, "further documents") {
			t.Errorf("%s has further documents: %s", text, told)
		}
		if _, diags := parse(doc.Bytes()); diags.HasErrors() {
			t.Errorf("%s: %v\n%s", text, diags.Err(), doc.Bytes())
		}
	}
}

// A check that would pass where that of blackbox_exporter fails is written only with Lax.
func TestAModuleThatWouldBeLaxerIsLeftOut(t *testing.T) {
	plugin := blackboximport.Plugin{File: "/p.wasm", SHA256: strings.Repeat("0", 64)}
	for text, field := range map[string]string{ // of a module: the field that is lost
		"{prober: http, http: {valid_http_versions: [HTTP/2.0]}}":                                                                   "http.valid_http_versions",
		"{prober: http, http: {fail_if_ssl: true}}":                                                                                 "http.fail_if_ssl",
		"{prober: http, http: {fail_if_not_ssl: true}}":                                                                             "http.fail_if_not_ssl",
		"{prober: http, http: {fail_if_body_not_matches_regexp: [a, b]}}":                                                           "http.fail_if_body_not_matches_regexp[1]",
		"{prober: http, http: {fail_if_body_json_matches_cel: a}}":                                                                  "http.fail_if_body_json_matches_cel",
		"{prober: http, http: {fail_if_header_not_matches: [{header: a, regexp: b, allow_missing: true}]}}":                         "http.fail_if_header_not_matches[0]",
		"{prober: http, http: {body_size_limit: 1MB}}":                                                                              "http.body_size_limit",
		"{prober: http, http: {body_file: a}}":                                                                                      "http.body_file",
		"{prober: http, http: {compression: gzip}}":                                                                                 "http.compression",
		"{prober: http, http: {proxy_url: 'http://a'}}":                                                                             "http.proxy_url",
		"{prober: http, http: {proxy_from_environment: true}}":                                                                      "http.proxy_from_environment",
		"{prober: http, http: {basic_auth: {username: a, password_file: b}}}":                                                       "http.basic_auth.password_file",
		"{prober: http, http: {authorization: {credentials_file: a}}}":                                                              "http.authorization.credentials_file",
		"{prober: http, http: {bearer_token_file: a}}":                                                                              "http.bearer_token_file",
		"{prober: http, http: {oauth2: {client_id: a}}}":                                                                            "http.oauth2",
		"{prober: http, http: {http_headers: {a: {values: [b]}}}}":                                                                  "http.http_headers",
		"{prober: http, http: {enable_http3: true}}":                                                                                "http.enable_http3",
		"{prober: http, http: {tls_config: {cert: x, key: y}}}":                                                                     "http.tls_config.cert, http.tls_config.key",
		"{prober: http, http: {tls_config: {ca: x}}}":                                                                               "http.tls_config.ca",
		"{prober: http, http: {tls_config: {max_version: TLS12}}}":                                                                  "http.tls_config.max_version",
		"{prober: tcp, tcp: {tls: true, tls_config: {max_version: TLS12}}}":                                                         "tcp.tls_config.max_version",
		"{prober: tcp, tcp: {query_response: [{expect_bytes: a}]}}":                                                                 "tcp.query_response[0].expect_bytes",
		"{prober: dns, dns: {query_name: a, query_type: A, query_class: CH}}":                                                       "dns.query_class",
		"{prober: dns, dns: {query_name: a, query_type: A, source_ip_address: 10.0.0.1}}":                                           "dns.source_ip_address",
		"{prober: dns, dns: {query_name: a, query_type: A, validate_answer_rrs: {fail_if_none_matches_regexp: [b]}}}":               "dns.validate_answer_rrs",
		"{prober: dns, dns: {query_name: a, query_type: A, validate_authority_rrs: {fail_if_matches_regexp: [b]}}}":                 "dns.validate_authority_rrs",
		"{prober: dns, dns: {query_name: a, query_type: A, validate_additional_rrs: {fail_if_all_match_regexp: [b]}}}":              "dns.validate_additional_rrs",
		"{prober: dns, dns: {query_name: a, query_type: A, dns_over_tls: true, transport_protocol: tcp, tls_config: {ca_file: a}}}": "dns.tls_config.ca_file",
		"{prober: grpc, grpc: {tls: true, tls_config: {min_version: TLS13}}}":                                                       "grpc.tls_config.min_version",
		"{prober: grpc, grpc: {metadata: {a: [b]}}}":                                                                                "grpc.metadata",
		"{prober: grpc, grpc: {ip_protocol_fallback: false}}":                                                                       "grpc.ip_protocol_fallback",
		"{prober: http, history: {a: 1}}":                                                                                           "history",
	} {
		for _, lax := range []bool{false, true} {
			doc, warnings, err := blackboximport.Write("blackbox.yml", []byte("modules: {m: "+text+"}"), blackboximport.Options{Allow: []string{"*"}, Lax: lax, DNS: plugin})
			if err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			written := strings.Contains("\n"+string(doc.Bytes()), "\nprobe_module \"m\"")
			told := strings.Join(warnings, "\n")
			if written != lax || !strings.Contains(told, "laxer") || !strings.Contains(told, field) || strings.Contains(told, "--lax") == lax {
				t.Errorf("lax %t: %s is written: %t; want %s in\n%s\n%s", lax, text, written, field, told, doc.Bytes())
			}
		}
	}
}

// A field with its default value is not reported as lost.
func TestDefaultsAreNoLoss(t *testing.T) {
	for _, text := range []string{
		"{prober: http, http: {fail_if_ssl: false, fail_if_body_matches_regexp: [], proxy_from_environment: false, body_size_limit: 0, compression: '', oauth2: {}}}",
		"{prober: http, http: {ip_protocol_fallback: true, valid_http_versions: [], enable_http2: true, follow_redirects: true}}",
		"{prober: tcp, tcp: {query_response: [], tls_config: {max_version: TLS12}}}",
		"{prober: tcp, tcp: {tls: false, ip_protocol_fallback: true}}",
	} {
		_, warnings, err := blackboximport.Write("blackbox.yml", []byte("modules: {m: "+text+"}"), blackboximport.Options{Allow: []string{"*"}})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %q", text, err, warnings)
		}
	}
}

func TestFurtherDocumentsAreTold(t *testing.T) {
	for text, want := range map[string]bool{
		"# a\n---\nmodules: {a: {prober: http}}\n":              false,
		"modules: {a: {prober: http}}\n---\nmodules: {b: {}}\n": true,
	} {
		_, warnings, err := blackboximport.Write("blackbox.yml", []byte(text), blackboximport.Options{Allow: []string{"*"}})
		if err != nil || strings.Contains(strings.Join(warnings, ""), "further documents") != want {
			t.Errorf("%q: %v, %v", text, warnings, err)
		}
	}
}

func TestWhatBlackboxExporterWouldNotReadIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"modules: {a: b}": "modules.a must be an object",
		"modules: {a: {prober: http, timeout: 0s}}":                                   "modules.a.timeout must be a duration",
		"modules: {a: {prober: http, http: {method: [x]}}}":                           "modules.a.http.method must be a text",
		"modules: {a: {prober: http, http: {follow_redirects: x}}}":                   "modules.a.http.follow_redirects must be true or false",
		"modules: {a: {prober: http, http: {valid_status_codes: 200}}}":               "modules.a.http.valid_status_codes must be a list",
		"modules: {a: {prober: http, http: {headers: {b: [c]}}}}":                     "modules.a.http.headers must be an object of texts",
		"modules: {a: {prober: tcp, tcp: {query_response: [x]}}}":                     "modules.a.tcp.query_response must be a list of objects",
		"modules: {a: {prober: tcp, tcp: {tls: true, tls_config: {min_version: x}}}}": "modules.a.tcp.tls_config.min_version must be TLS10",
		"modules: {a: {prober: tcp, tcp: {query_response: [{expect: '(?!a)'}]}}}":     "modules.a.tcp.query_response[0].expect must be a regular expression",
		"modules: {a: {prober: dns}}":                                                 "modules.a.dns.query_name must be set",
		"modules: {a: {}, a: {}}":                                                     "already set",
		"[1]":                                                                         "blackbox.yml: ",
	} {
		if _, _, err := blackboximport.Write("blackbox.yml", []byte(text), blackboximport.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzWhatIsWrittenIsRead imports arbitrary texts. The result must have no syntax errors, and a module for each module of the
// text that was not left out.
func FuzzWhatIsWrittenIsRead(f *testing.F) {
	for _, text := range []string{
		"modules: {a: {prober: http, http: {headers: {a: b}, body: \"${x}\\n\", tls_config: {ca_file: a}}}}",
		"modules: {a: {prober: tcp, timeout: 5s, tcp: {query_response: [{expect: a}, {send: b}], tls: true}}}",
		"modules: {\"a b\": {prober: dns, dns: {query_name: a, valid_rcodes: [x]}}, c: {prober: grpc, grpc: {service: \"\\u0000\"}}}",
		"modules: {a: {prober: \"\\n}\"}}\n\"x\\n\": 1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, _, err := blackboximport.Write("blackbox.yml", []byte(text), blackboximport.Options{})
		if err != nil || doc == nil {
			return
		}
		source := config.Source{Name: "import.hcl", Bytes: doc.Bytes()}
		if err := config.Syntax(source).Err(); err != nil {
			t.Fatalf("%v\n%s", err, source.Bytes)
		}
		c, _ := parse(source.Bytes)
		for name, m := range c.ProbeModules {
			if m.Handler == nil || probe.CheckGroupName(name) != nil {
				t.Errorf("the module %q is %+v", name, m)
			}
		}
	})
}
