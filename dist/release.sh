#!/usr/bin/env bash
# Builds a release into OUT (default bin/release): for each platform the programs sonde and
# sonde-xds, and for Linux the packages deb and rpm of sonde. The same commit and the same Go give the same bytes: the
# build has no paths (-trimpath), no cgo, and the time of the commit.
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

# documents writes the man pages and the completions of a program that this machine runs.
documents() {
	mkdir -p "$1/man" "$1/completion"
	"$2" man "$1/man"
	"$2" completion bash >"$1/completion/sonde.bash"
	"$2" completion zsh >"$1/completion/_sonde"
	"$2" completion fish >"$1/completion/sonde.fish"
}

make --silent "GO=$GO" interpreter
rm -rf "$OUT"
mkdir -p "$OUT"
"$GO" build -ldflags=-s -o "$OUT/host/sonde" ./cmd/engine
documents "$OUT/host" "$OUT/host/sonde"
for platform in "${platforms[@]}"; do
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	to=$OUT/$GOOS-$GOARCH
	mkdir -p "$to"
	"$GO" build -ldflags=-s -o "$to/sonde" ./cmd/engine
	cp -R "$OUT/host/man" "$OUT/host/completion" "$to"
	"$GO" build -C adapter/xds -ldflags=-s -o "$(cd "$to" && pwd)/sonde-xds" ./cmd/sonde-xds
	for program in sonde sonde-xds; do
		env -u GOOS -u GOARCH "$GO" run ./dist/sbom "$to/$program" >"$to/$program.cdx.json"
	done
	if [ "$GOOS" = linux ]; then
		for packager in deb rpm; do
			OUT=$to ARCH=$GOARCH env -u GOOS -u GOARCH "$GO" tool -modfile=dist/nfpm/go.mod nfpm package \
				--config dist/nfpm.yaml --packager $packager --target "$OUT/sonde_${VERSION}_$GOARCH.$packager" >/dev/null
		done
	fi
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$to" -cf - . |
		gzip -n >"$OUT/sonde_${VERSION}_${GOOS}_$GOARCH.tar.gz"
done
rm -rf "$OUT/host"
(cd "$OUT" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
