#!/bin/bash
# `make browser` and `make screenshots`: the pages in a real browser, on an installation of their own.
#
#   BIN_DIR       where the programs are (target/debug)
#   CHROMIUM      the browser (chromium of the distribution, which is installed where it is missing)
#   SCREENSHOTS   folder for pictures; unset: none are taken
#   PROTECTED     an MCP server with an authorization server of its own (ours is started)
#   PROVIDER      origin of that authorization server; its pages have links #allow and #deny
#   JOURNEYS      a regular expression: only journeys whose names match are walked
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=$(cd "${BIN_DIR:-$root/target/debug}" && pwd)

CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$CHROMIUM" ] || ! command -v npm >/dev/null; then
    packages=()
    [ -n "$CHROMIUM" ] || packages+=(chromium fonts-dejavu-core)
    command -v npm >/dev/null || packages+=(nodejs npm)
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=120
        install --no-install-recommends "${packages[@]}")
    "${install[@]}" >/dev/null || { "${as_root[@]}" apt-get -q update >/dev/null && "${install[@]}" >/dev/null; }
    CHROMIUM=${CHROMIUM:-$(command -v chromium)}
fi
# As the lock file says; nothing of it runs at installation.
npm_quietly() { npm "$@" --ignore-scripts --no-audit --no-fund --silent; }
(cd "$here" && npm_quietly ci)

# The private Postgres of root runs as another account, which must pass through.
work=$(mktemp -d "${TMPDIR:-/tmp}/browser.XXXXXXXX")
chmod 711 "$work"
pids=()
finish() {
    status=$?
    trap - EXIT
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
    [ "$status" = 0 ] || tail -n 5 "$work"/*.log >&2
    rm -rf "$work"
    exit "$status"
}
trap finish EXIT

# Playwright needs Node 20; where the distribution's is older, npm has one.
node=node
if [ "$(node --version | sed 's/^v\([0-9]*\).*/\1/')" -lt 20 ]; then
    case $(uname -m) in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; esac
    npm_quietly install --prefix "$work/node" "node-linux-$arch@22"
    node=$work/node/node_modules/node-linux-$arch/bin/node
fi

# Starts a program and waits for its line `ready URL`.
start() { # start <name> <argument…>
    local name=$1
    shift
    "$bin/$name" "$@" </dev/null >"$work/$name.out" 2>"$work/$name.log" &
    pids+=($!)
    for _ in $(seq 3000); do
        url=$(sed -n 's/^ready //p' "$work/$name.out")
        [ -z "$url" ] || return 0
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.05
    done
    echo "$name does not start" >&2
    return 1
}
start bailiwick-demo --listen 127.0.0.1:0
upstream=$url
if [ -z "${PROTECTED:-}" ]; then
    start protected-peer
    PROTECTED=$url PROVIDER=
fi
start company-issuer
issuer=$url
BAILIWICK_EGRESS_ALLOW=127.0.0.1,localhost start bailiwick up --data-dir "$work/data" --listen 127.0.0.1:0

CHROMIUM=$CHROMIUM SERVICE=$url UPSTREAM=$upstream PROTECTED=$PROTECTED PROVIDER=${PROVIDER:-} ISSUER=$issuer \
    DATA=$work/data SCREENSHOTS=${SCREENSHOTS:-} JOURNEYS=${JOURNEYS:-} "$node" "$here/journeys.mjs"
