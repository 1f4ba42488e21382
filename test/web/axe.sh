#!/usr/bin/env bash
# Prints the path of axe-core's axe.min.js, for TestAxe: $THESEUS_AXE, or the pinned version from npm, which is fetched
# once and kept in the cache. npm finds its registry by its own configuration. Where there is none, it prints nothing
# and says so; with --kept, it does not fetch.
set -euo pipefail
version=4.14.1
# of the package: what npm calls its integrity, in hexadecimal
sha512=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
cache=${XDG_CACHE_HOME:-$HOME/.cache}/theseus-lab
package=$cache/axe-core-$version.tgz script=$cache/axe-core-$version.min.js

is() { echo "$sha512  $1" | sha512sum --check --status; }
lacks() {
	echo "== NOT TESTED: the rules of axe-core on the live page: $1" >&2
	echo "   give its file in THESEUS_AXE, or let npm reach a registry: npm pack axe-core@$version" >&2
	exit 0
}

[ -z "${THESEUS_AXE:-}" ] || { echo "$THESEUS_AXE"; exit 0; }
if [ ! -f "$package" ]; then
	[ "${1:-}" != --kept ] || lacks "axe-core $version was never fetched"
	command -v npm >/dev/null || lacks "there is no npm"
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/axe.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	said=$(cd "$work" && timeout 120 npm pack --loglevel error --ignore-scripts --fetch-retries 1 "axe-core@$version" 2>&1) ||
		lacks "npm cannot fetch axe-core $version: $(grep -m 1 -E '^npm error (.*(failed|[Ee]rror|E[0-9A-Z]+))' <<<"$said" || tail -1 <<<"$said")"
	is "$work/axe-core-$version.tgz" || { echo "error: axe-core $version from npm is not the pinned one" >&2; exit 1; }
	mv "$work/axe-core-$version.tgz" "$package"
fi
is "$package" || { echo "error: $package is not the pinned axe-core $version" >&2; echo "hint: remove it" >&2; exit 1; }
tar -xzOf "$package" package/axe.min.js >"$script.$$"
mv "$script.$$" "$script"
echo "$script"
