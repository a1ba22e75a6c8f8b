#!/bin/sh
# Builds the plugins in this directory, each in its own: thrift/thrift.wasm. Plugins that
# are newer than their sources are not rebuilt. A plugin whose compiler is missing is
# skipped with a message. Arguments select directories; GO selects another go command.
set -eu
cd "$(dirname "$0")"
export GO="${GO:-go}"

# fresh reports whether a plugin is newer than its sources in the given files and directories.
fresh() {
	plugin=$1
	shift
	[ -e "$plugin" ] && [ -z "$(find "$@" -name node_modules -prune -o -type f -newer "$plugin" ! -name '*_test.go' \
		\( -name '*.go' -o -name 'go.*' -o -name '*.[ch]' -o -name '*.rs' -o -name '*.ts' -o -name '*.json' -o -name build.sh \) -print)" ]
}

# build_go runs a plugin in Go, which builds itself with its manifest.
build_go() {
	fresh "$1/$1.wasm" "$1" go.mod go.sum ../../guest/*.go ../../guest/go.mod && return
	echo "go run ./$1 -o $1/$1.wasm"
	"$GO" run "./$1" -o "$1/$1.wasm"
}

# build_other calls the build.sh of a plugin in another language, which exits with 77 to
# skip it. The directory's name is the plugin and the SDK: line-c.
build_other() {
	fresh "$1/${1%-*}.wasm" "$1" "../../guest/${1#*-}" ../../wasmhost/abi && return
	echo "$1/build.sh"
	"$1/build.sh" || [ $? = 77 ]
}

[ $# -gt 0 ] || set -- */
for name; do
	name=${name%/}
	if [ -e "$name/build.sh" ]; then
		build_other "$name"
	elif [ -e "$name/main.go" ]; then
		build_go "$name"
	fi
done
