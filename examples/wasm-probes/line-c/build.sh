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

command -v "${GO:=go}" >/dev/null || skip "there is no go, which adds the manifest"
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT

# The flags for modules without a libc, and for those with wasi-libc.
bare="--target=wasm32 -ffreestanding -nostdlib -Wl,--no-entry"
posix="--target=wasm32-wasi --sysroot=${WASI_SYSROOT:-/usr} -mexec-model=reactor"

# links reports whether a compiler makes modules with the flags given: that it knows the target
# does not mean that its linker and its libraries are installed.
links() {
	echo 'int answer(void) { return 42; }' | "$@" -x c -o "$raw" - 2>/dev/null
}

# choose finds the first compiler that works with the flags given.
choose() {
	for clang in ${CLANG:-clang clang-22 clang-21 clang-20 clang-19 clang-18 clang-17 clang-16 clang-15 clang-14}; do
		links "$clang" "$@" && return
	done
	false
}

# build compiles with the flags given and adds the manifest.
build() {
	name=$1
	shift
	"$clang" -std=c11 -Wall -Wextra -Werror -Os -mbulk-memory -Wl,--strip-all -Wl,-z,stack-size=32768 \
		-I "$here/../../../guest/c" -o "$raw" "$@" "$here/line.c"
	(cd "$here/../../.." && "$GO" run ./cmd/engine plugin build "$here" --module "$raw" --output "$out/$name")
}

# shellcheck disable=SC2086
choose $bare || skip "there is no clang for wasm32 with wasm-ld (set CLANG)"
# shellcheck disable=SC2086
build line.wasm $bare
# shellcheck disable=SC2086
if [ -e "${WASI_SYSROOT:-/usr}/include/wasm32-wasi/poll.h" ] && choose $posix; then
	build line-posix.wasm $posix
fi
