#!/bin/sh
# Builds line.wasm without std, and line-std.wasm from the same source with it, into a
# folder (default: this one). Exits with 77 when the tools are missing.
# Debian: apt-get install rustc libstd-rust-dev-wasm32 lld-14
# Others: rustup target add wasm32-unknown-unknown
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-$here}"
out=$(cd "${1:-$here}" && pwd)

skip() {
	echo "skipped: line-rust: $1" >&2
	exit 77
}

# has tells whether a compiler has the standard library for a target.
has() {
	[ -n "$(find "$("$1" --print target-libdir --target "$2" 2>/dev/null || echo /nowhere)" -name 'libcore-*.rlib' 2>/dev/null)" ]
}

for rustc in ${RUSTC:-rustc /usr/bin/rustc}; do
	has "$rustc" wasm32-unknown-unknown && break
done
has "$rustc" wasm32-unknown-unknown || skip "there is no rustc for wasm32-unknown-unknown (set RUSTC)"
command -v "${GO:=go}" >/dev/null || skip "there is no go, which adds the manifest"

# Debian's rustc has no linker of its own for wasm, and needs the one of its LLVM.
linker=
if ! [ -e "$("$rustc" --print sysroot)/lib/rustlib/$("$rustc" -vV | sed -n 's/^host: //p')/bin/rust-lld" ]; then
	linker=$(command -v wasm-ld-14 || command -v wasm-ld) || skip "there is no wasm-ld-14 (set RUSTC)"
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# build compiles the SDK and the plugin for a target, with the flags given, and adds the
# manifest.
build() {
	name=$1 target=$2
	shift 2
	# A stack of 128 KiB: each instance of the plugin has its own, and rustc's is of 1 MiB.
	set -- --edition 2021 --target "$target" -C opt-level=s -C panic=abort -C lto -C strip=symbols \
		-C target-feature=+bulk-memory \
		-C link-arg=-zstack-size=131072 ${linker:+-C "linker=$linker"} "$@"
	"$rustc" "$@" --crate-type rlib --crate-name sonde -C embed-bitcode -o "$dir/libsonde.rlib" "$here/../../../guest/rust/src/lib.rs"
	"$rustc" "$@" --crate-type cdylib --crate-name line --extern "sonde=$dir/libsonde.rlib" -o "$dir/line.wasm" "$here/line.rs"
	(cd "$here/../../.." && "$GO" run ./cmd/engine plugin build "$here" --module "$dir/line.wasm" --output "$out/$name")
}

build line.wasm wasm32-unknown-unknown
for wasi in wasm32-wasip1 wasm32-wasi; do
	if has "$rustc" $wasi; then
		build line-std.wasm $wasi --cfg 'feature="std"'
		break
	fi
done
