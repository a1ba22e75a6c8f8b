#!/usr/bin/env bash
# Builds a release into OUT (default bin/release): for each platform the programs sonde, sonde-fleet and sonde-xds, and for
# Linux the packages deb and rpm of the first two, and the container image as an archive of an OCI layout. The plugins in
# plugins/ are the same for all. The same commit and the same Go give the same bytes: the build has no paths (-trimpath), no
# cgo, and the time of the commit. It uploads nothing.
#
# usage: [VERSION=v1.2.3] dist/release.sh [all|OS/ARCH...]
#
# Without arguments the platform is this machine's.
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
OUT=${OUT:-bin/release}
platforms=("$@")
[ $# -gt 0 ] || platforms=("$("$GO" env GOHOSTOS)/$("$GO" env GOHOSTARCH)")
[ "${platforms[*]}" != all ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)
plugins=(dns mysql postgres redis thrift websocket) # what sonde does not have built in

tag=$(git describe --tags --match 'v[0-9]*' 2>/dev/null || true)
VERSION=${VERSION:-$tag}
VERSION=${VERSION:-0.0.0~$(git log -1 --format=%cd.%h --date=format:%Y%m%d)}
version=$VERSION # as sonde version says it
VERSION=${VERSION#v}
VERSION=${VERSION//-/.} # rpm permits no hyphen
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH VERSION
export CGO_ENABLED=0 GOFLAGS=-trimpath
flags="-s -X github.com/sonde-probe/sonde/cmd/engine/internal/root.release=$version"

began=$SECONDS
say() { echo "release $version, $((SECONDS - began)) s: $*"; }

# completions writes the completions of a program that this machine runs.
completions() {
	local program
	program=$(basename "$2")
	mkdir -p "$1"
	"$2" completion bash >"$1/$program.bash"
	"$2" completion zsh >"$1/_$program"
	"$2" completion fish >"$1/$program.fish"
}

say "the modules that are built in, and the plugins ${plugins[*]}"
make --silent "GO=$GO" embedded
rm -rf "$OUT"
mkdir -p "$OUT/host" "$OUT/plugins"
OUT=$(cd "$OUT" && pwd)
for plugin in "${plugins[@]}"; do
	"$GO" run -C examples/wasm-probes "./$plugin" -o "$OUT/plugins/$plugin.wasm" >/dev/null
done
say "manual pages and completions"
"$GO" build -ldflags="$flags" -o "$OUT/host/sonde" ./cmd/engine
"$GO" build -C cmd/engine/fleet -ldflags="$flags" -o "$OUT/host/sonde-fleet" .
"$OUT/host/sonde" man "$OUT/host/man"
"$OUT/host/sonde-fleet" man "$OUT/host/man-fleet"
completions "$OUT/host/completion" "$OUT/host/sonde"
completions "$OUT/host/completion" "$OUT/host/sonde-fleet"
host() { env -u GOOS -u GOARCH "$@"; }
for platform in "${platforms[@]}"; do
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	say "programs for $platform"
	to=$OUT/$GOOS-$GOARCH
	mkdir -p "$to"
	"$GO" build -ldflags="$flags" -o "$to/sonde" ./cmd/engine
	cp -R "$OUT/host/man" "$OUT/host/man-fleet" "$OUT/host/completion" "$to"
	"$GO" build -C cmd/engine/fleet -ldflags="$flags" -o "$to/sonde-fleet" .
	"$GO" build -C gateway/xds -ldflags="$flags" -o "$to/sonde-xds" ./cmd/sonde-xds
	for program in sonde sonde-fleet sonde-xds; do
		host "$GO" run ./dist/sbom "$to/$program" >"$to/$program.cdx.json"
	done
	if [ "$GOOS" = linux ]; then
		say "packages and image for $platform"
		for packager in deb rpm; do
			for of in "sonde nfpm" "sonde-fleet nfpm-fleet"; do
				PLUGINS=$OUT/plugins OUT=$to ARCH=$GOARCH host "$GO" tool -modfile=dist/nfpm/go.mod nfpm package \
					--config "dist/${of#* }.yaml" --packager $packager --target "$OUT/${of% *}_${VERSION}_$GOARCH.$packager" >/dev/null
			done
		done
		host "$GO" run ./dist/oci -arch "$GOARCH" -name "sonde:$VERSION" "$to/sonde" "$OUT/plugins" >"$OUT/sonde_${VERSION}_$GOARCH.oci.tar"
	fi
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$to" -cf - . |
		gzip -n >"$OUT/sonde_${VERSION}_${GOOS}_$GOARCH.tar.gz"
done
rm -rf "$OUT/host"
(cd "$OUT" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
say "done: $OUT/SHA256SUMS"
