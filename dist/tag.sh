#!/usr/bin/env bash
# Tags the commit that is checked out as a release, and pushes nothing. The main module gets the
# tag VERSION, and each module that others import or install the tag MODULE/VERSION: at a commit
# of its own, where go.mod requires VERSION instead of replacing the main module by the checkout.
#
# usage: dist/tag.sh v1.2.3
set -euo pipefail
cd "$(dirname "$0")/.."

GO=${GO:-go}
main=github.com/sonde-probe/sonde
modules=(gateway/caddy fleet/etcd gateway/xds)
version=${1:?usage: dist/tag.sh v1.2.3}
[ -z "$(git status --porcelain)" ] || { echo "there are changes that are not committed" >&2; exit 1; }

work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; "$GO" clean -modcache; rm -rf "$work"' EXIT
git tag -a -m "Sonde $version" "$version"

# The sums of the main module, read from this repository as if the tag had been pushed.
export GOMODCACHE=$work/modules GOPRIVATE=$main GOWORK=off
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$PWD.insteadOf" GIT_CONFIG_VALUE_0="https://$main"
downloaded=$(cd "$work" && "$GO" mod download -json "$main@$version")
sum() { sed -n "s/^\t\"$1\": \"\(.*\)\",*$/\1/p" <<<"$downloaded"; }

git worktree add --quiet --detach "$work/tree" "$version"
for module in "${modules[@]}"; do
	(
		cd "$work/tree/$module"
		"$GO" mod edit -dropreplace="$main" -require="$main@$version"
		printf '%s %s %s\n' "$main" "$version" "$(sum Sum)" "$main" "$version/go.mod" "$(sum GoModSum)" >>go.sum
		LC_ALL=C sort -o go.sum go.sum
	)
done
git -C "$work/tree" commit --quiet --all -m "gateway, fleet: require $version of the main module"
for module in "${modules[@]}"; do
	git -C "$work/tree" tag -a -m "Sonde $version: $module" "$module/$version"
done
git tag --points-at "$version"
git -C "$work/tree" tag --points-at HEAD
echo "to publish them: git push origin $version ${modules[*]/%//$version}"
