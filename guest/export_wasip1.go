package guest

import (
	"bytes"
	"errors"
	"time"
)

// Main does nothing in a host, which never calls a plugin's main.
func Main() {}

//go:wasmexport sonde_abi_v1
func marker() {}

//go:wasmexport sonde_configure
func configure() int32 {
	_, err := registered.prepare(input(inputSettings))
	if err == nil {
		return 0
	}
	var wrong *FieldError
	if errors.As(err, &wrong) {
		hostOutput(outputField, wrong.Field)
		hostOutput(outputDetail, wrong.Problem)
		return 1
	}
	hostOutput(outputDetail, err.Error())
	return 1
}

//go:wasmexport sonde_run
func run() int32 {
	current, err := decodeAttempt(input(inputTarget))
	if err != nil {
		hostOutput(outputDetail, err.Error())
		return int32(Unknown)
	}
	ctx := &lazyContext{deadline: time.Now().Add(time.Duration(hostRemaining()))}
	defer ctx.end()
	r := registered.attempt(ctx, current.host, current.settings)
	if r.Reason != "" {
		hostOutput(outputReason, r.Reason)
	}
	if r.Detail != "" {
		hostOutput(outputDetail, r.Detail)
	}
	return int32(r.Outcome)
}

// decoded caches what an instance has decoded of targets and settings: it serves the same
// probes repeatedly.
type decoded struct {
	host     *host
	settings any
	text     []byte         // of the last attempt's target
	known    map[string]any // settings by revision
}

// maxKnown bounds decoded.known, which is cleared when it is full.
const maxKnown = 1024

var last = decoded{known: make(map[string]any)}

// decodeAttempt returns the target and the settings of an attempt.
func decodeAttempt(text []byte) (*decoded, error) {
	if last.host != nil && bytes.Equal(text, last.text) {
		return &last, nil
	}
	e, revision := endpointOf(string(text))
	last.text = append(last.text[:0], text...)
	last.host = nil
	settings, ok := last.known[revision]
	if !ok {
		var err error
		if settings, err = registered.prepare(input(inputSettings)); err != nil {
			return nil, err
		}
		if len(last.known) >= maxKnown {
			clear(last.known)
		}
		last.known[revision] = settings
	}
	last.host, last.settings = &host{e}, settings
	return &last, nil
}

// schemaOf returns nothing: the manifest is made outside of WebAssembly.
func schemaOf[S any]() []setting { return nil }

// setting is a part of the manifest.
type setting struct{}
