package blackboximport

import (
	"strings"

	"github.com/sonde-probe/sonde/config/document"
)

// tcp writes the handler block of the prober tcp.
func (im *importer) tcp(name string, module *document.Body, f *fields) (leftOut string) {
	body := module.Block("tcp")
	f.copy("source_ip_address", body, "source_address")
	f.family(body)
	steps := f.objects("query_response")
	if leftOut = im.conversation(name, body, steps); leftOut != "" {
		for _, s := range steps {
			s.takeAll()
		}
	}
	tls := f.object("tls_config")
	if f.flag("tls", false) {
		im.tls(name, body, tls)
	} else {
		tls.takeAll() // without effect
	}
	for i, s := range steps {
		labels := s.objects("labels")
		for _, l := range labels {
			l.takeAll()
		}
		if len(labels) > 0 {
			im.warn(name, body, "Ignored: tcp.query_response[%d].labels, which are of a metric.", i)
		}
	}
	return leftOut
}

// conversation writes the sent and the expected text. Only one of each is supported, and the text must be sent before the other
// is expected.
func (im *importer) conversation(name string, body *document.Body, steps []*fields) (leftOut string) {
	const tooMany = "query_response has several steps, which needs a script"
	send, expect := "", ""
	for _, s := range steps {
		if s.flag("starttls", false) {
			return "query_response has starttls, which needs a script"
		}
		wanted, sent := s.text("expect"), s.text("send")
		if wanted != "" && expect != "" {
			return tooMany
		}
		if strings.Contains(wanted, `\B`) {
			return "query_response has \\B, which would match within the end of a line"
		}
		if wanted != "" {
			var err error
			if expect, err = ofLine(wanted); err != nil {
				s.wrong("expect", "a regular expression")
			}
		}
		switch {
		case sent == "":
		case expect != "":
			im.warn(name, body, "Ignored: what is sent when the expected text has come. The attempt has ended then.")
		case send != "":
			return tooMany
		default:
			send = sent + "\n"
		}
	}
	if send != "" {
		body.Set("send", send)
	}
	if expect != "" {
		body.Set("expect_regex", expect)
	}
	return ""
}
