package blackboximport

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/document"
)

// http writes the handler block of the prober http.
func (im *importer) http(name string, module *document.Body, f *fields) {
	body := module.Block("http")
	if method := f.text("method"); method != "" {
		body.Set("method", strings.ToUpper(method))
	}
	for _, condition := range []string{"fail_if_ssl", "fail_if_not_ssl"} {
		if f.flag(condition, false) {
			f.lose(condition)
		}
	}
	f.family(body)
	f.copy("source_ip_address", body, "source_address")
	if headers := headers(f); len(headers) > 0 {
		body.Set("headers", headers)
	}
	f.copy("body", body, "body")
	status := f.texts("valid_status_codes")
	if len(status) == 0 {
		status = []string{"200-299"}
	}
	body.Set("status", status)
	followed := f.flag("follow_redirects", true) && !f.flag("no_follow_redirects", false)
	body.Set("redirects", map[bool]string{true: "all", false: "none"}[followed])
	if all := f.texts("fail_if_body_not_matches_regexp"); len(all) > 0 {
		body.Set("body_regex", all[0])
		for i := range all[1:] {
			f.lose(fmt.Sprintf("fail_if_body_not_matches_regexp[%d]", i+1)) // only one body_regex is possible
		}
	}
	if all := f.texts("fail_if_body_matches_regexp"); len(all) > 0 {
		body.Set("body_not_regex", anyOf(all))
	}
	responseHeaders(body, f)
	if tls := f.object("tls_config"); len(tls.values) > 0 {
		body.SetWithComment("scheme", "http", "of targets without one")
		im.tls(name, body, tls)
	}
}

// headers takes the headers of requests, including those that blackbox_exporter adds for other fields.
func headers(f *fields) map[string]string {
	headers := f.textMap("headers")
	has := func(name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(headers)), func(h string) bool { return strings.EqualFold(h, name) })
	}
	if !f.flag("enable_http2", true) && !has("Connection") {
		headers["Connection"] = "close" // HTTP/2 does not have this header
	}
	basic, other := f.object("basic_auth"), f.object("authorization")
	authorization := ""
	if token := f.text("bearer_token"); token != "" {
		authorization = "Bearer " + token
	}
	if token := other.text("credentials"); token != "" {
		authorization = cmp.Or(other.text("type"), "Bearer") + " " + token
	}
	if len(basic.values) > 0 {
		authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(basic.text("username")+":"+basic.text("password")))
	}
	if authorization != "" && !has("Authorization") {
		headers["Authorization"] = authorization
	}
	return headers
}

// anyOf returns a regular expression that matches if one of several does.
func anyOf(all []string) string {
	if len(all) == 1 {
		return all[0]
	}
	return "(?:" + strings.Join(all, ")|(?:") + ")"
}

// responseHeaders writes the conditions for headers of the response.
func responseHeaders(body *document.Body, f *fields) {
	matches, forbidden := map[string]string{}, map[string]string{}
	for i, one := range f.objects("fail_if_header_not_matches") {
		header, regex, optional := http.CanonicalHeaderKey(one.text("header")), one.text("regexp"), one.flag("allow_missing", false)
		if _, twice := matches[header]; twice || optional {
			f.lose(fmt.Sprintf("fail_if_header_not_matches[%d]", i))
			continue
		}
		matches[header] = regex
	}
	for _, one := range f.objects("fail_if_header_matches") {
		header, regex, optional := http.CanonicalHeaderKey(one.text("header")), one.text("regexp"), one.flag("allow_missing", false)
		if before, twice := forbidden[header]; twice {
			regex = anyOf([]string{before, regex})
		}
		forbidden[header] = regex
		if _, given := matches[header]; !given && !optional {
			matches[header] = "" // the header must be present
		}
	}
	if len(matches) > 0 {
		body.Set("header_regex", matches)
	}
	if len(forbidden) > 0 {
		body.Set("header_not_regex", forbidden)
	}
}

// tlsVersions maps the names of versions in blackbox_exporter to those of Sonde.
var tlsVersions = map[string]string{"TLS10": "1.0", "TLS11": "1.1", "TLS12": "1.2", "TLS13": "1.3"}

// tls writes a tls block of a built-in handler.
func (im *importer) tls(name string, handler *document.Body, f *fields) {
	body := handler.Block("tls")
	insecure := f.flag("insecure_skip_verify", false)
	if insecure {
		body.Set("verify", false)
	}
	for _, argument := range []string{"ca_file", "cert_file", "key_file", "server_name"} {
		value := f.text(argument)
		switch {
		case value == "":
		case argument == "ca_file" && insecure:
			im.warn(name, body, "Ignored: tls_config.ca_file, which has no effect with insecure_skip_verify.")
		default:
			body.Set(argument, value)
		}
	}
	if version := f.text("min_version"); tlsVersions[version] != "" {
		body.Set("min_version", tlsVersions[version])
	} else if version != "" {
		f.wrong("min_version", "TLS10, TLS11, TLS12 or TLS13")
	}
}
