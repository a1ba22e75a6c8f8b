#!/bin/sh
# Builds line.wasm into a folder (default: this one). Exits with 77 when the compiler is
# missing. To get it: npm ci, in this folder; or set ASC.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here}"
out=$(cd "${1:-$here}" && pwd)

skip() {
	echo "skipped: line-as: $1" >&2
	exit 77
}

asc=${ASC:-$here/node_modules/.bin/asc}
command -v node >/dev/null || skip "there is no node"
command -v "$asc" >/dev/null || skip "there is no AssemblyScript compiler (npm ci in $here, or set ASC)"
command -v "${GO:=go}" >/dev/null || skip "there is no go, which adds the manifest"

raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
(cd "$here/../../.." && "$asc" examples/wasm-probes/line-as/line.ts --baseDir . -O3 --shrinkLevel 1 --runtime stub --initialMemory 2 \
	--exportStart _initialize --use abort=guest/as/sonde/abort -o "$raw")
(cd "$here/../../.." && "$GO" run ./cmd/engine plugin build "$here" --module "$raw" --output "$out/line.wasm")
