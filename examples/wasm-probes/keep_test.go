package wasmprobes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// keeping has plugins whose check of settings computes a text, and whose attempts report it.
var keeping = map[string]string{
	"c": `#include "sonde.h"
static int check(void) {
  char text[64], kept[80];
  sonde_text("text", text, sizeof text);
  return sonde_keep(kept, sonde_join(kept, sizeof kept, "checked ", text)) < 0;
}
static sonde_outcome probe(void) {
  char kept[80], small[1];
  int n = sonde_kept(kept, sizeof kept - 1);
  if (n == 0) return sonde_warning("kept.nothing", "nothing");
  if (n < 0 || sonde_kept(small, sizeof small) != -SONDE_E2BIG) return sonde_unknown("", "too large");
  kept[n] = 0;
  return sonde_success(kept);
}
SONDE_PLUGIN(probe)
SONDE_CONFIGURE(check)
`,
	"rust": `#![no_std]
use sonde::{keep, kept, success, unknown, warning, Attempt, Refused, Settings, Text, E2BIG};
fn check(s: &Settings) -> Result<(), Refused> {
    let mut buf = [0; 64];
    keep(Text::new(format_args!("checked {}", s.text("text", &mut buf).unwrap_or("?"))).as_bytes());
    Ok(())
}
fn probe(_: &Settings) -> Attempt {
    let (mut buf, mut small) = ([0; 80], [0; 1]);
    let text = kept(&mut buf).map_err(|e| e.during("read"))?;
    if text.is_empty() {
        return Ok(warning("kept.nothing", format_args!("nothing")));
    }
    if kept(&mut small) != Err(E2BIG) {
        return Ok(unknown("", format_args!("too large")));
    }
    Ok(success(format_args!("{}", core::str::from_utf8(text).unwrap_or("?"))))
}
sonde::plugin!(probe, check);
`,
	"as": `import * as sonde from "./sonde/sonde";
export { sonde_abi_v1 } from "./sonde/sonde";
function check(): i32 {
  sonde.keep("checked " + sonde.text("text"));
  return 0;
}
function probe(): i32 {
  const kept = sonde.kept();
  return kept.length == 0 ? sonde.warning("kept.nothing", "nothing") : sonde.success(kept);
}
export function sonde_run(): i32 { return sonde.run(probe); }
export function sonde_configure(): i32 { return sonde.run(check); }
`,
}

func TestEachSDKKeepsWhatWasComputedFromSettings(t *testing.T) {
	tier.CI(t) // requires compilers
	sonde := program.Build(t, program.Sonde)
	setCompilerOfAssemblyScript(t)
	for lang, source := range map[string]string{"c": "c", "rust": "rs", "as": "ts"} {
		t.Run(lang, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "keeps")
			run(t, exec.Command(sonde, "plugin", "new", "--lang", lang, "--dir", dir, "keeps"))
			write(t, filepath.Join(dir, "keeps."+source), keeping[lang])
			write(t, filepath.Join(dir, "manifest.json"), `{"name": "keeps", "abi": 1, "settings": [{"name": "text", "type": "string"}]}`)
			text, err := exec.Command(sonde, "plugin", "build", dir).CombinedOutput()
			if strings.Contains(string(text), "a tool is missing") {
				tier.Lacks(t, string(text))
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			module, err := os.ReadFile(filepath.Join(dir, "keeps.wasm"))
			if err != nil {
				t.Fatal(err)
			}
			p, err := wasmhost.Load(wasmhost.Config{Module: module})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(context.Background())
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			h, err := p.New(map[string]any{"text": "hello"})
			if err != nil {
				t.Fatal(err)
			}
			for h, want := range map[*wasmhost.Handler]probe.Result{
				h:                   {Outcome: probe.Success, Detail: "checked hello"},
				h.WithoutPrepared(): {Outcome: probe.Warning, Detail: "nothing"},
			} {
				if got := h.Probe(t.Context(), probe.Target{Name: "web"}); got.Outcome != want.Outcome || got.Detail != want.Detail {
					t.Errorf("got %v %s: %s, want %v: %s", got.Outcome, got.Reason, got.Detail, want.Outcome, want.Detail)
				}
			}
		})
	}
}
