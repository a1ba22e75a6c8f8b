package guest

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"unsafe"
)

// Main does nothing in a host, which never calls a plugin's main.
func Main() {}

//go:wasmexport sonde_abi_v1
func marker() {}

//go:wasmexport sonde_configure
func configure() int32 {
	settings, err := registered.prepare(input(inputSettings), nothingKept)
	if err == nil {
		if k, ok := settings.(Keeper); ok {
			kept := k.Keep()
			hostOutput(outputPrepared, unsafe.String(unsafe.SliceData(kept), len(kept))) // if this fails, each attempt calls Prepare
		}
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
	stepRandom()
	alone = runtime.NumGoroutine()
	h := &host{endpoint: endpointOf(string(input(inputTarget)))}
	settings, err := registered.prepare(input(inputSettings), keptInput)
	if err != nil {
		hostOutput(outputDetail, err.Error())
		return int32(Unknown)
	}
	ctx := &lazyContext{}
	defer ctx.stop()
	r := registered.attempt(ctx, h, settings)
	if r.Reason != "" {
		hostOutput(outputReason, r.Reason)
	}
	if r.Detail != "" {
		hostOutput(outputDetail, r.Detail)
	}
	return int32(r.Outcome)
}

// keptInput returns the bytes that Keep returned when the settings were checked.
func keptInput() []byte { return input(inputPrepared) }

// stepRandom makes the numbers of math/rand differ between attempts. All attempts start with the
// same generator, which the runtime seeded during initialisation and which cannot be reseeded.
// stepRandom skips a random number of its values.
func stepRandom() {
	const most = 64 // a few microseconds: a value takes a tenth of a microsecond
	var n uint8
	hostRandom((*byte)(unsafe.Pointer(&n)), int32(unsafe.Sizeof(n)))
	for range n % most {
		rand.Uint64()
	}
}

// schemaOf returns nil: the manifest is created outside WebAssembly.
func schemaOf[S any]() []setting { return nil }

// setting is a part of the manifest.
type setting struct{}
