#!/bin/bash
# `make conformance`: MCP's public conformance suite against the gateway, with our own server of its tools
# (tests/src/conformance.rs) behind it, and against us as a client (client.mjs). Suite and node 22 come from npm, as
# package-lock.json says.
#
#   BIN_DIR                 where the programs are (target/debug)
#   CONFORMANCE_HOME        where npm installs (~/.cache/bailiwick-conformance)
#   CONFORMANCE_OUT         the page that is written (docs/conformance.md)
#   CONFORMANCE_OPTIONAL=1  where npm cannot be reached, say so and end well
#   CONFORMANCE_KEEP=1      keep the working directory: logs, and every check of the suite
#   FIXTURE=rig             the suite's own fixture instead of our server, as ../shared/rig installs it
#   SIDE=server|client      only that one; no page is written
#   SCENARIO=NAME           only this one; no page is written
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$(cd "${BIN_DIR:-$root/target/debug}" && pwd)
cache=${CONFORMANCE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/bailiwick-conformance}

nothing() {
    echo "conformance: NOTHING WAS CHECKED: $*" >&2
    [ "${CONFORMANCE_OPTIONAL:-}" = 1 ] || exit 1
    exit 0
}

install() {
    command -v npm >/dev/null || nothing "there is no npm"
    mkdir -p "$cache"
    cp "$here/package.json" "$here/package-lock.json" "$cache/"
    # As the lock file says; nothing of it runs at installation. npm itself may be older than the suite wants.
    (cd "$cache" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
        nothing "npm could not install the suite: see above"
    cp "$here/package-lock.json" "$cache/installed"
}
mkdir -p "$(dirname "$cache")"
(
    flock 9
    cmp -s "$here/package-lock.json" "$cache/installed" || install
) 9>"$cache.lock"
cmp -s "$here/package-lock.json" "$cache/installed" || exit 0
case $(uname -m) in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; *) nothing "npm has no node for this machine" ;; esac
node=$cache/node_modules/node-linux-$arch/bin/node

# The private Postgres of root runs as another account, which must pass through.
work=$(mktemp -d /var/tmp/conformance.XXXXXXXX)
chmod 711 "$work"
finish() {
    status=$?
    trap - EXIT
    if [ "${CONFORMANCE_KEEP:-}" = 1 ]; then echo "kept: $work"; else rm -rf "$work"; fi
    exit "$status"
}
trap finish EXIT

BIN=$bin WORK=$work SUITE=$cache/node_modules/@modelcontextprotocol/conformance \
    OUT=${CONFORMANCE_OUT:-$([ "${FIXTURE:-}" = rig ] || echo "$root/docs/conformance.md")} \
    RIG_HOME=${RIG_HOME:-$HOME/.cache/mcp-rig} "$node" "$here/run.mjs"
