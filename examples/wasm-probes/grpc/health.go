package main

import (
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/guest"
)

// The states of grpc.health.v1.HealthCheckResponse.
const (
	serving        = 1
	statusOK       = "0"
	notFound       = "5"
	unimplemented  = "12"
	unavailable    = 14
	responseStatus = 1 // number of the field status in the message
)

var states = []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// result returns the result of an attempt with a response.
func (a answer) result() guest.Result {
	switch {
	case a.httpStatus != "200" && a.grpcStatus == "":
		return guest.Fail("grpc.http", fmt.Sprintf("the server answers with the HTTP status %.20q", a.httpStatus))
	case !strings.HasPrefix(a.contentType, "application/grpc"):
		return guest.Fail("grpc.protocol", fmt.Sprintf("the content type is %.60q, which is not gRPC's", a.contentType))
	case a.grpcStatus != statusOK:
		return a.refusal()
	}
	state, ok := stateOf(a.message)
	switch {
	case !ok:
		return guest.Fail("grpc.protocol", "the response is not a health status")
	case state == serving:
		return guest.Succeed("SERVING")
	case state < uint64(len(states)):
		return guest.Fail("grpc.not_serving", "the service is "+states[state])
	}
	return guest.Fail("grpc.not_serving", fmt.Sprintf("the service is in the state %d", state))
}

// measure reports the numbers that blackbox_exporter has for a response. Without a response the
// status is UNAVAILABLE. The state of health is -1 if the call failed.
func measure(t guest.Target[settings], a answer) {
	status, err := strconv.ParseFloat(a.grpcStatus, 64)
	if err != nil {
		status = unavailable
	}
	t.Measure("grpc_status_code", status)
	state, ok := stateOf(a.message)
	if !ok || a.grpcStatus != statusOK || state >= uint64(len(states)) {
		t.Measure("grpc_serving_status", -1)
		return
	}
	t.Measure("grpc_serving_status", float64(state))
}

// refusal returns the result of a call with an error status.
func (a answer) refusal() guest.Result {
	text := a.grpcMessage
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	switch a.grpcStatus {
	case "":
		return guest.Fail("grpc.protocol", "the answer has no grpc-status")
	case unimplemented:
		return guest.Fail("grpc.unimplemented", "the server has no grpc.health.v1.Health: "+text)
	case notFound:
		return guest.Fail("grpc.service_unknown", "the server does not know the service: "+text)
	}
	return guest.Fail("grpc.status", fmt.Sprintf("the call ended with status %.10s: %s", a.grpcStatus, text))
}

// stateOf decodes the message of a response: a byte that is 1 if the message is compressed, its
// length in four bytes, and its fields.
func stateOf(b []byte) (state uint64, ok bool) {
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-5) {
		return 0, false
	}
	for b = b[5:]; len(b) > 0; {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		if key == responseStatus<<3 {
			if state, n = binary.Uvarint(b); n <= 0 {
				return 0, false
			}
		}
		if b, ok = skipField(b, key&7); !ok {
			return 0, false
		}
	}
	return state, true
}

// skipField skips a field's value. It returns false if the value is truncated.
func skipField(b []byte, wire uint64) (rest []byte, ok bool) {
	var length uint64
	switch wire {
	case 0:
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, false
		}
		length = uint64(n)
	case 1:
		length = 8
	case 2:
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)) {
			return nil, false
		}
		length = n + uint64(used)
	case 5:
		length = 4
	default:
		return nil, false
	}
	if length > uint64(len(b)) {
		return nil, false
	}
	return b[length:], true
}
