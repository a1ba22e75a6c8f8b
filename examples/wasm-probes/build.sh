#!/bin/sh
# Builds the plugins of this folder, each into its own: thrift/thrift.wasm. Those that
# are newer than all they are made of are left alone. A plugin whose compiler is missing
# is skipped, which is said. Arguments choose folders; GO names another go.
set -eu
cd "$(dirname "$0")"
export GO="${GO:-go}"

# fresh tells whether a plugin is newer than its sources in the files and folders given.
fresh() {
	plugin=$1
	shift
	[ -e "$plugin" ] && [ -z "$(find "$@" -name node_modules -prune -o -type f -newer "$plugin" ! -name '*_test.go' \
		\( -name '*.go' -o -name 'go.*' -o -name '*.[ch]' -o -name '*.rs' -o -name '*.ts' -o -name '*.json' -o -name build.sh \) -print)" ]
}

# build_go runs a plugin in Go, which builds itself and brings its manifest.
build_go() {
	fresh "$1/$1.wasm" "$1" go.mod go.sum ../../guest/*.go ../../guest/go.mod && return
	echo "go run ./$1 -o $1/$1.wasm"
	"$GO" run "./$1" -o "$1/$1.wasm"
}

# build_other calls the build.sh of a plugin in another language, which ends with 77
# when it skips. The folder is named by the plugin and the SDK: line-c.
build_other() {
	fresh "$1/${1%-*}.wasm" "$1" "../../guest/${1#*-}" internal/pack ../../wasmhost/abi && return
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
