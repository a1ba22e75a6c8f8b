package blackboximport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/config/document"
)

// need adds a plugin to the configuration. If its file is not set, need returns why the module is left out.
func (im *importer) need(name string, p Plugin) (leftOut string) {
	if p.File == "" {
		return fmt.Sprintf("it needs a plugin: give its file with --%s-plugin, or add plugin %q { source = … }", name, name)
	}
	if slices.Contains(im.plugins, name) {
		return ""
	}
	im.plugins = append(im.plugins, name)
	im.head.Newline()
	p.write(im.head, name)
	return ""
}

// write writes the block of a plugin, which may dial only the probed target.
func (p Plugin) write(doc *document.Document, name string) {
	body := doc.Block("plugin", name)
	body.Set("source", p.File)
	body.Set("sha256", p.SHA256)
	body.BlockOf("grant", document.Argument{Name: "dial", Value: []string{"target"}})
}

// dnsTypes are the record types that the dns plugin knows by name.
var dnsTypes = strings.Fields("A AAAA ANY CAA CDNSKEY CDS CNAME DNSKEY DS HINFO HTTPS MX NS PTR SOA SRV SSHFP SVCB TLSA TXT")

// dns writes the handler block of the dns plugin.
func (im *importer) dns(name string, module *document.Body, f *fields) (leftOut string) {
	body := module.Block("dns")
	query := f.text("query_name")
	if query == "" {
		f.wrong("query_name", "set")
	}
	body.Set("name", query)
	kind := cmp.Or(strings.ToUpper(f.text("query_type")), "ANY")
	body.Set("type", kind)
	body.SetWithComment("least", 0, "an answer without records is right, too")
	f.addresses(name, body)
	f.copy("transport_protocol", body, "network")
	tls, overTLS := f.object("tls_config"), f.flag("dns_over_tls", false)
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
		pluginTLS(body, tls)
	} else {
		tls.takeAll() // without effect
	}
	if !slices.Contains(dnsTypes, kind) {
		return fmt.Sprintf("the plugin cannot query records of type %s: write its number into the configuration, as in type = \"TYPE99\"", kind)
	}
	return im.need("dns", im.options.DNS)
}

// grpc writes the grpc handler block.
func (im *importer) grpc(name string, module *document.Body, f *fields) (leftOut string) {
	body := module.Block("grpc")
	f.copy("service", body, "service")
	f.addresses(name, body)
	tls := f.object("tls_config")
	if f.flag("tls", false) {
		body.SetWithComment("port", 443, "of targets without one")
		pluginTLS(body, tls)
	} else {
		body.SetWithComment("port", 80, "of targets without one")
		tls.takeAll() // without effect
	}
	if err := im.options.NoGRPC; err != nil {
		return err.Error()
	}
	return ""
}

// addresses reads the IP family for a handler that tries all addresses of a name.
func (f *fields) addresses(module string, body *document.Body) {
	preferred := f.text("preferred_ip_protocol")
	switch {
	case !f.flag("ip_protocol_fallback", true):
		f.lose("ip_protocol_fallback")
	case preferred != "":
		f.im.warn(module, body, "Ignored: %s, since all addresses of a name are tried until one accepts.", join(f.short, "preferred_ip_protocol"))
	}
}

// pluginTLS writes the tls block of a plugin. A plugin cannot read files, so files are not supported.
func pluginTLS(handler *document.Body, f *fields) {
	body := handler.Block("tls")
	if f.flag("insecure_skip_verify", false) {
		body.Set("verify", false)
	}
	f.copy("server_name", body, "server_name")
}
