package beatprobe

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// A beat in a datagram is one line of ASCII, except for the name of the target, which is UTF-8:
//
//	sonde-beat/1 MAC TIME STATUS TARGET
//
// with one space between the fields. A line feed at the end is ignored.
//
//	MAC     64 lower-case hexadecimal digits: HMAC-SHA256, keyed with the bytes of the target's token, of
//	        "sonde-beat/1 TIME STATUS TARGET"
//	TIME    nanoseconds since 1970 by the sender's clock, 1 to 19 decimal digits; each beat of a
//	        target has a later one
//	STATUS  as ParseReport accepts it, but not empty
//	TARGET  the name of the target, up to the end of the line; it may contain spaces
//
// There is no response.
const datagramVersion = "sonde-beat/1 "

// maxDatagram is the maximum length of a datagram, in bytes.
const maxDatagram = len(datagramVersion) + 2*sha256.Size + 1 + 19 + 1 + 5 + 1 + probe.MaxTargetName + 1

// datagram is a beat as received. Its fields must not be trusted before isSignedWith returns true.
type datagram struct {
	mac    [sha256.Size]byte
	signed []byte // the bytes that mac signs, without datagramVersion
	time   uint64
	report Report
	target string
}

// parseDatagram parses a datagram.
func parseDatagram(b []byte) (d datagram, err error) {
	if len(b) > maxDatagram {
		return d, fmt.Errorf("datagram of more than %d bytes", maxDatagram)
	}
	rest, ok := bytes.CutPrefix(b, []byte(datagramVersion))
	if !ok {
		return d, errors.New("datagram that is not a beat of version 1")
	}
	rest = bytes.TrimSuffix(rest, []byte("\n"))
	mac, signed, _ := bytes.Cut(rest, []byte(" "))
	sent, rest, _ := bytes.Cut(signed, []byte(" "))
	status, target, _ := bytes.Cut(rest, []byte(" "))
	d.signed, d.target = signed, string(target)
	if n, err := hex.Decode(d.mac[:], mac[:min(len(mac), 2*sha256.Size)]); err != nil || n != sha256.Size || len(mac) != 2*sha256.Size || !bytes.Equal(mac, bytes.ToLower(mac)) {
		return d, errors.New("datagram without a MAC of 64 lower-case hexadecimal digits")
	}
	if d.time, err = strconv.ParseUint(string(sent), 10, 63); err != nil || sent[0] == '0' || len(sent) > 19 {
		return d, errors.New("datagram without a time in nanoseconds since 1970")
	}
	if d.report, err = ParseReport(string(status)); err != nil || len(status) == 0 {
		return d, errors.New("datagram without a status")
	}
	if (probe.ID{Target: d.target, Kind: probe.Liveness}).Check() != nil {
		return d, errors.New("datagram without the name of a target")
	}
	return d, nil
}

// isSignedWith reports whether the datagram was signed with token.
func (d *datagram) isSignedWith(token string) bool {
	return hmac.Equal(d.mac[:], sign(token, d.signed))
}

func sign(token string, signed []byte) []byte {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(datagramVersion)) // never returns an error
	mac.Write(signed)
	return mac.Sum(nil)
}

// AppendDatagram appends a beat in the datagram format to b. Each beat of a target needs a later time.
func AppendDatagram(b []byte, target, token string, at time.Time, report Report) []byte {
	status := report.Status.String()
	if report.Exit != 0 {
		status = strconv.Itoa(int(report.Exit))
	}
	signed := fmt.Appendf(nil, "%d %s %s", at.UnixNano(), status, target)
	return fmt.Appendf(b, "%s%x %s", datagramVersion, sign(token, signed), signed)
}
