package abi_test

import (
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func TestReasonsHaveALayerAndACause(t *testing.T) {
	good := []string{"redis.loading", "a.b", "h2.go_away", "3.4", strings.Repeat("a", 61) + ".b"}
	bad := []string{
		"", ".", "a", "a.", ".b", "a.b.c", "A.b", "a b.c", "a-b.c", "ä.b", strings.Repeat("a", 62) + ".b",
		"plugin.trap", "engine.stopped", "handler.panic", "target.port", "restart.ended",
	}
	for _, s := range good {
		if !abi.CheckReason(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range bad {
		if abi.CheckReason(s) {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestFunctionsAreWellFormed(t *testing.T) {
	for module, functions := range map[string][]abi.Function{
		abi.HostModule: abi.Functions(),
		abi.WASIModule: append(abi.WASI(), abi.WASIRefused()...),
	} {
		seen := make(map[string]bool)
		for _, f := range functions {
			if seen[f.Name] || strings.Trim(f.Params+f.Results, "ild") != "" || len(f.Results) > 1 {
				t.Errorf("%s: %+v", module, f)
			}
			seen[f.Name] = true
		}
	}
}

func TestErrorsHaveTexts(t *testing.T) {
	if got := abi.ENOTCAPABLE.Error(); got != "not granted" {
		t.Errorf("got %q", got)
	}
	if got := abi.Errno(200).Error(); got != "error 200" {
		t.Errorf("got %q", got)
	}
}
