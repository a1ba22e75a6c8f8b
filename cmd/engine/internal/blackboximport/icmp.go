package blackboximport

import (
	"fmt"
	"strconv"

	icmpprobe "github.com/sonde-probe/sonde/builtin/icmp"
	"github.com/sonde-probe/sonde/config/document"
)

// icmp writes the handler block of the prober icmp.
func icmp(module *document.Body, f *fields) {
	body := module.Block("icmp")
	f.copy("source_ip_address", body, "source_address")
	f.family(body)
	for _, field := range []struct {
		name        string
		least, most int
	}{{"payload_size", icmpprobe.MinPayload, icmpprobe.MaxPayload}, {"ttl", 1, 255}} {
		text := f.text(field.name)
		if text == "" || text == "0" { // the default of both programs
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > field.most {
			f.wrong(field.name, fmt.Sprintf("a number from 0 to %d", field.most))
			continue
		}
		body.Set(field.name, max(n, field.least))
	}
	if f.flag("dont_fragment", false) {
		body.Set("dont_fragment", true)
	}
}
