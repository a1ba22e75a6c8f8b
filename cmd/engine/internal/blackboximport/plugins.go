package blackboximport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/document"
)

// needs notes that a module needs a plugin, and returns why it cannot be used without, or "".
func (im *importer) needs(plugin string, p Plugin) (leftOut string) {
	if p.File == "" {
		return fmt.Sprintf("it needs a plugin: give its file with --%s-plugin, or add plugin %q { source = … }", plugin, plugin)
	}
	if !slices.Contains(im.plugins, plugin) {
		im.plugins = append(im.plugins, plugin)
	}
	return ""
}

// dnsTypes are the types of records that the plugin dns can query.
var dnsTypes = []string{"A", "AAAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT"}

// dns writes the handler block of the plugin dns.
func (im *importer) dns(name string, module *document.Body, f *fields) (read []*fields, leftOut string) {
	body := module.Block("dns")
	query := f.text("query_name")
	if query == "" {
		f.wrong("query_name", "set")
	}
	body.Set("name", query)
	kind := strings.ToUpper(f.text("query_type"))
	if kind == "" {
		kind = "ANY"
	}
	if !slices.Contains(dnsTypes, kind) {
		leftOut = fmt.Sprintf("the plugin cannot query records of type %s: write query_type A, for example", kind)
	}
	body.Set("type", kind)
	body.SetWithComment("least", 0, "an answer without records is right, too")
	f.addresses(name, body)
	network := f.text("transport_protocol")
	tls, overTLS := f.object("tls_config"), f.flag("dns_over_tls", false)
	if network != "" {
		body.Set("network", network)
	}
	if !f.flag("recursion_desired", true) {
		body.Set("recursion", false)
	}
	if codes := f.texts("valid_rcodes"); len(codes) > 0 {
		body.Set("rcode", codes[0])
		if len(codes) > 1 {
			im.warn(name, body, "Ignored: further elements of valid_rcodes, since there is one rcode.")
		}
	}
	if overTLS {
		body.SetWithComment("port", 853, "of targets without one")
		im.pluginTLS(body, tls)
	} else {
		tls.takeAll() // without effect
	}
	if leftOut == "" {
		leftOut = im.needs("dns", im.options.DNS)
	}
	return []*fields{f, tls}, leftOut
}

// grpc writes the handler block of the plugin grpc.
func (im *importer) grpc(name string, module *document.Body, f *fields) (read []*fields, leftOut string) {
	body := module.Block("grpc")
	if service := f.text("service"); service != "" {
		body.Set("service", service)
	}
	f.addresses(name, body)
	tls := f.object("tls_config")
	if f.flag("tls", false) {
		body.SetWithComment("port", 443, "of targets without one")
		im.pluginTLS(body, tls)
	} else {
		body.SetWithComment("port", 80, "of targets without one")
		tls.takeAll() // without effect
	}
	return []*fields{f, tls}, im.needs("grpc", im.options.GRPC)
}

// pluginTLS writes a tls block of a plugin, which cannot read files.
func (im *importer) pluginTLS(handler *document.Body, f *fields) {
	body := handler.Block("tls")
	if f.flag("insecure_skip_verify", false) {
		body.Set("verify", false)
	}
	if server := f.text("server_name"); server != "" {
		body.Set("server_name", server)
	}
}
