#!/usr/bin/env bash
# Builds a release into OUT (default bin/release): for each platform the programs sonde, sonde-fleet and
# sonde-xds, and for Linux the packages deb and rpm of the first two. The same commit and the same Go give the same
# bytes: the build has no paths (-trimpath), no cgo, and the time of the commit.
#
# usage: dist/release.sh [OS/ARCH...]
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
OUT=${OUT:-bin/release}
platforms=("$@")
[ $# -gt 0 ] || platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)

tag=$(git describe --tags --match 'v[0-9]*' 2>/dev/null || true)
VERSION=${VERSION:-${tag#v}}
VERSION=${VERSION:-0.0.0~$(git log -1 --format=%cd.%h --date=format:%Y%m%d)}
VERSION=${VERSION//-/.} # rpm permits no hyphen
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH VERSION
export CGO_ENABLED=0 GOFLAGS=-trimpath

# completions writes the completions of a program that this machine runs.
completions() {
	name=$(basename "$2")
	mkdir -p "$1"
	"$2" completion bash >"$1/$name.bash"
	"$2" completion zsh >"$1/_$name"
	"$2" completion fish >"$1/$name.fish"
}

make --silent "GO=$GO" embedded
rm -rf "$OUT"
mkdir -p "$OUT/host"
"$GO" build -ldflags=-s -o "$OUT/host/sonde" ./cmd/engine
"$GO" build -C cmd/engine/fleet -ldflags=-s -o "$(cd "$OUT/host" && pwd)/sonde-fleet" .
"$OUT/host/sonde" man "$OUT/host/man"
"$OUT/host/sonde-fleet" man "$OUT/host/man-fleet"
completions "$OUT/host/completion" "$OUT/host/sonde"
completions "$OUT/host/completion" "$OUT/host/sonde-fleet"
for platform in "${platforms[@]}"; do
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	to=$OUT/$GOOS-$GOARCH
	mkdir -p "$to"
	"$GO" build -ldflags=-s -o "$to/sonde" ./cmd/engine
	cp -R "$OUT/host/man" "$OUT/host/man-fleet" "$OUT/host/completion" "$to"
	"$GO" build -C cmd/engine/fleet -ldflags=-s -o "$(cd "$to" && pwd)/sonde-fleet" .
	"$GO" build -C gateway/xds -ldflags=-s -o "$(cd "$to" && pwd)/sonde-xds" ./cmd/sonde-xds
	for program in sonde sonde-fleet sonde-xds; do
		env -u GOOS -u GOARCH "$GO" run ./dist/sbom "$to/$program" >"$to/$program.cdx.json"
	done
	if [ "$GOOS" = linux ]; then
		for packager in deb rpm; do
			OUT=$to ARCH=$GOARCH env -u GOOS -u GOARCH "$GO" tool -modfile=dist/nfpm/go.mod nfpm package \
				--config dist/nfpm.yaml --packager $packager --target "$OUT/sonde_${VERSION}_$GOARCH.$packager" >/dev/null
			OUT=$to ARCH=$GOARCH env -u GOOS -u GOARCH "$GO" tool -modfile=dist/nfpm/go.mod nfpm package \
				--config dist/nfpm-fleet.yaml --packager $packager --target "$OUT/sonde-fleet_${VERSION}_$GOARCH.$packager" >/dev/null
		done
	fi
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$to" -cf - . |
		gzip -n >"$OUT/sonde_${VERSION}_${GOOS}_$GOARCH.tar.gz"
done
rm -rf "$OUT/host"
(cd "$OUT" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
