#!/bin/sh
# Builds line.wasm, and line-posix.wasm from the same source with wasi-libc, into a
# folder (default: this one). Exits with 77 when the tools are missing.
# Debian: apt-get install clang-19 lld-19 libclang-rt-19-dev-wasm32 wasi-libc
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here}"
out=$(cd "${1:-$here}" && pwd)

skip() {
	echo "skipped: line-c: $1" >&2
	exit 77
}

for clang in ${CLANG:-clang clang-19}; do
	"$clang" --print-targets 2>/dev/null | grep -q wasm32 && break
done
"$clang" --print-targets 2>/dev/null | grep -q wasm32 || skip "there is no clang for wasm32 (set CLANG)"
[ -e "$("$clang" --print-prog-name=wasm-ld)" ] || skip "$clang has no wasm-ld"
command -v "${GO:=go}" >/dev/null || skip "there is no go, which adds the manifest"

raw=$(mktemp)
trap 'rm -f "$raw"' EXIT

# build compiles with the flags given and adds the manifest.
build() {
	name=$1
	shift
	"$clang" -std=c11 -Wall -Wextra -Werror -Os -mbulk-memory -Wl,--strip-all -Wl,-z,stack-size=32768 \
		-I "$here/../../../guest/c" -o "$raw" "$@" "$here/line.c"
	(cd "$here/../../.." && "$GO" run ./cmd/engine plugin build "$here" --module "$raw" --output "$out/$name")
}

build line.wasm --target=wasm32 -ffreestanding -nostdlib -Wl,--no-entry
if [ -e "${WASI_SYSROOT:-/usr}/include/wasm32-wasi/poll.h" ]; then
	build line-posix.wasm --target=wasm32-wasi --sysroot="${WASI_SYSROOT:-/usr}" -mexec-model=reactor
fi
