package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost/tck"
)

// linePlugin is a module without a manifest, to which scripts add one. It sends PING to
// the target's port line and accepts any answer. It refuses settings whose JSON is
// longer than 999 bytes, with an error for the setting say. It is assembled from:
//
//	(module
//	  (import "sonde_v1" "dial" (func $dial (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
//	  (import "sonde_v1" "write" (func $write (param i32 i32 i32) (result i32)))
//	  (import "sonde_v1" "read" (func $read (param i32 i32 i32) (result i32)))
//	  (import "sonde_v1" "output" (func $output (param i32 i32 i32) (result i32)))
//	  (import "sonde_v1" "input" (func $input (param i32 i32 i32) (result i32)))
//	  (memory (export "memory") 1)
//	  (global (export "sonde_abi_v1") i32 (i32.const 1))
//	  (data (i32.const 0) "tcp:lineunused.sayPING\0Amust be shorter")
//	  (func (export "sonde_configure") (result i32)
//	    (if (i32.le_s (call $input (i32.const 1) (i32.const 100) (i32.const 9999)) (i32.const 999))
//	      (then (return (i32.const 0))))
//	    (drop (call $output (i32.const 4) (i32.const 15) (i32.const 3)))
//	    (drop (call $output (i32.const 1) (i32.const 23) (i32.const 15)))
//	    (i32.const 1))
//	  (func (export "sonde_run") (result i32)
//	    (local $fd i32) (local $n i32)
//	    (local.set $fd (call $dial (i32.const 0) (i32.const 3) (i32.const 3) (i32.const 5)
//	      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
//	    (if (i32.lt_s (local.get $fd) (i32.const 0)) (then (return (i32.const 3))))
//	    (drop (call $write (local.get $fd) (i32.const 18) (i32.const 5)))
//	    (local.set $n (call $read (local.get $fd) (i32.const 100) (i32.const 100)))
//	    (if (i32.le_s (local.get $n) (i32.const 0)) (then (return (i32.const 3))))
//	    (drop (call $output (i32.const 1) (i32.const 100) (local.get $n)))
//	    (i32.const 1)))
const linePlugin = "" +
	"AGFzbQEAAAABGANgCH9/f39/f39/AX9gA39/fwF/YAABfwJVBQhzb25kZV92MQRkaWFsAAAIc29uZGVfdjEFd3JpdGUAAQhzb25k" +
	"ZV92MQRyZWFkAAEIc29uZGVfdjEGb3V0cHV0AAEIc29uZGVfdjEFaW5wdXQAAQMDAgICBQMBAAEGBgF/AEEBCwc3BAZtZW1vcnkC" +
	"AAxzb25kZV9hYmlfdjEDAA9zb25kZV9jb25maWd1cmUABQlzb25kZV9ydW4ABgp9AisAQQFB5ABBj84AEARB5wdMBEBBAA8LQQRB" +
	"D0EDEAMaQQFBF0EPEAMaQQELTwECf0EAQQNBA0EFQQBBAEEAQQAQACEAIABBAEgEQEEDDwsgAEESQQUQARogAEHkAEHkABACIQEg" +
	"AUEATARAQQMPC0EBQeQAIAEQAxpBAQsLLAEAQQALJnRjcDpsaW5ldW51c2VkLnNheVBJTkcKbXVzdCBiZSBzaG9ydGVy"

// pluginEnv prepares a script for plugins: the file line.module, an echo server, a folder for compiled code, and the
// environment of the go command.
func pluginEnv(e *testscript.Env, cache string) error {
	module, err := base64.StdEncoding.DecodeString(linePlugin)
	if err != nil {
		return err
	}
	port, stop, err := tck.Echo()
	if err != nil {
		return err
	}
	e.Defer(stop)
	e.Setenv("ECHO", fmt.Sprint(port))
	e.Setenv("ECHO_ADDRESS", net.JoinHostPort(tck.Loopback, fmt.Sprint(port)))
	e.Setenv("XDG_CACHE_HOME", cache)
	e.Setenv("LF", "\n")
	for _, tool := range []string{"ASC", "CLANG", "RUSTC"} {
		e.Setenv(tool, os.Getenv(tool))
	}
	return errors.Join(goEnv(e), os.WriteFile(filepath.Join(e.WorkDir, "line.module"), module, 0o644))
}

// goEnv lets scripts use the Go caches of this machine.
func goEnv(e *testscript.Env) error {
	names := []string{"GOCACHE", "GOMODCACHE", "GOFLAGS", "GOTOOLCHAIN"}
	out, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return err
	}
	values := strings.Split(string(out), "\n")
	for i, name := range names {
		e.Setenv(name, values[i])
	}
	e.Setenv("GOPROXY", "off") // a new plugin has no dependencies to download
	return nil
}

// buildPlugin is the script command that builds an example plugin in Go.
func buildPlugin(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "plugin NAME")
	program.Plugin(testOf(ts), args[0])
}

// needCompiler is the script command of scripts that compile a plugin in a language other than Go. They run only in .ci/run.
func needCompiler(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "compiler LANG")
	t := testOf(ts)
	tier.CI(t)
	dir := filepath.Join(t.TempDir(), "try")
	ts.Check(ts.Exec("sonde", "plugin", "new", "try", "--lang", args[0], "--dir", dir))
	err := ts.Exec("sonde", "plugin", "build", dir)
	if _, reason, isMissing := strings.Cut(ts.ReadFile("stderr"), "a tool is missing: "); err != nil && isMissing {
		tier.Lacks(t, strings.TrimSpace(reason))
	}
	ts.Check(err)
}
