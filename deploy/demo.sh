#!/bin/bash
# `make demo`: a governed call from beginning to end, on this machine.
#
# Starts `bailiwick up` and the demo MCP server, registers the server, calls a tool through the gateway
# as a real MCP client, answers its question, denies another call, and shows the audit. Leaves both
# running and prints their address; DEMO_EXIT=1 stops them and exits 0.
#
#   BIN_DIR             where the two programs are (target/debug)
#   DEMO_DIR            where the demo keeps everything (.data/demo)
#   DEMO_PORT           port of the service (8080, or a free one where that is taken)
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(cd "${BIN_DIR:-target/debug}" && pwd)

# Whether every directory above lets others pass: the private Postgres of root runs as another account.
passable() {
    local at=$1
    while [ "$at" != / ]; do
        at=$(dirname "$at")
        [ ! -d "$at" ] || [ -n "$(find "$at" -maxdepth 0 -perm -001)" ] || return 1
    done
}

base=${DEMO_DIR:-$PWD/.data/demo}
if [ -z "${DEMO_DIR:-}" ] && [ "$(id -u)" = 0 ] && ! passable "$base"; then
    # One place for each checkout.
    base=/var/tmp/bailiwick-demo-$(printf %s "$PWD" | sha256sum | cut -c1-12)
fi
(umask 022 && mkdir -p "$base")
umask 077
base=$(cd "$base" && pwd)
if [ "$(id -u)" = 0 ]; then chmod 711 "$base"; else chmod 700 "$base"; fi
dir=$base/installation

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || step() { printf '\n== %s\n' "$*"; }

# Ends a program that an earlier run started: only the process whose number was noted, and only if it
# still is that program.
stop() { # stop <name> <seconds>
    local file=$base/$1.pid pid
    [ -s "$file" ] || return 0
    pid=$(cat "$file")
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$(printf %.15s "$1")" ]; then
        kill "$pid" 2>/dev/null || true
        for _ in $(seq $(($2 * 20))); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.05
        done
        if kill -0 "$pid" 2>/dev/null; then
            echo "$1 (process $pid) does not end" >&2
            return 1
        fi
    fi
    rm -f "$file"
}
stop_all() {
    stop bailiwick 12
    stop bailiwick-demo 5
}

# Starts a program that outlives this script, and waits for its line `ready URL`.
start() { # start <name> <seconds> <argument…>
    local name=$1 seconds=$2 pid
    shift 2
    : >"$base/$name.out"
    setsid "$bin/$name" "$@" </dev/null >"$base/$name.out" 2>"$base/$name.log" &
    pid=$!
    echo "$pid" >"$base/$name.pid"
    for _ in $(seq $((seconds * 20))); do
        url=$(sed -n 's/^ready //p' "$base/$name.out")
        [ -z "$url" ] || return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    echo "$name does not start; the end of $base/$name.log:" >&2
    tail -n 20 "$base/$name.log" >&2
    return 1
}

finish() {
    local status=$?
    trap - EXIT
    if [ "$status" != 0 ] || [ "${DEMO_EXIT:-}" = 1 ]; then
        stop_all || status=1
    fi
    [ "$status" = 0 ] || echo "the demo failed" >&2
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

api() { # api <method> <path> [<body>]
    local body=()
    [ $# -lt 3 ] || body=(--header 'content-type: application/json' --data "$3")
    # The token comes from a file: arguments are there for all to see.
    curl --silent --show-error --fail-with-body --noproxy '*' --request "$1" \
        --header @<(printf 'authorization: Bearer %s' "$(cat "$dir/admin-token")") \
        "${body[@]}" "$service$2"
}

step "Starting the demo MCP server and the service"
stop_all
# The server keeps its address from run to run, so that its registration stays true.
upstream_port=$(cat "$base/upstream-port" 2>/dev/null || echo 0)
if [ "$upstream_port" != 0 ] && taken "$upstream_port"; then upstream_port=0; fi
start bailiwick-demo 20 --listen "127.0.0.1:$upstream_port"
upstream=$url
port=${upstream#http://127.0.0.1:}
echo "${port%%/*}" >"$base/upstream-port"
echo "MCP server   $upstream"

port=${DEMO_PORT:-8080}
if taken "$port"; then port=0; fi
# Upstreams on this machine are refused unless the operator lists them.
BAILIWICK_EGRESS_ALLOW=127.0.0.1 start bailiwick 150 up --data-dir "$dir" --listen "127.0.0.1:$port"
service=$url
echo "service      $service"
echo "data         $dir"

step "Registering the MCP server"
form=$(jq -nc --arg url "$upstream" '{
    name: "Demo", slug: "demo", description: "The demo server of Bailiwick",
    transport: "http", url: $url, authMode: "none", enabled: true}')
known=$(api GET /api/mcp/servers | jq -c '.items[] | select(.slug == "demo")')
if [ -z "$known" ]; then
    server=$(api POST /api/mcp/servers "$form")
elif [ "$(jq -r .url <<<"$known")" != "$upstream" ]; then
    id=$(jq -r .id <<<"$known")
    server=$(api PUT "/api/mcp/servers/$id" "$(jq -c --argjson known "$known" '. + {revision: $known.revision}' <<<"$form")")
else
    server=$known
fi
id=$(jq -r .id <<<"$server")
api POST "/api/mcp/servers/$id/tools/refresh" | jq -r '.items[] | "  \(.agentName)  \(.description)"'
# Registering a server grants nothing: that all sessions may use it is a step of its own.
api PATCH /api/tenant "{\"enabledSourceIds\": [\"$id\"]}" >/dev/null

step "Calling a tool: the person is asked, and allows it once"
echo "\$ bailiwick call mcp__demo__greet '{\"name\": \"World\"}' --answer allow_once"
"$bin/bailiwick" call mcp__demo__greet '{"name": "World"}' --answer allow_once --data-dir "$dir" 2>&1

step "Calling a dangerous tool: the person denies it, and the server never hears of it"
echo "\$ bailiwick call mcp__demo__delete_everything '{\"scope\": \"the archive\"}' --answer deny"
if "$bin/bailiwick" call mcp__demo__delete_everything '{"scope": "the archive"}' --answer deny --data-dir "$dir" 2>&1; then
    echo "a denied call succeeded" >&2
    exit 1
fi

step "What the audit has of it (newest first)"
session=$(api GET '/api/sessions?limit=1' | jq -r '.items[0].id')
calls=$(api GET "/api/sessions/$session/mcp/invocations?limit=6")
jq -r '.items[] | "\(.createdAt[0:19])  \(.status)\t\(.askedName)\(if .error then "  " + .error.code else "" end)\n    invocation \(.id)  authorization \(.permissionAuthorizationId // "-")\n    request sha256 \(.requestDigest)"' <<<"$calls" | expand -t 32
# The two calls above are the newest two rows, whatever was before.
jq -e '[.items[0:2][] | .status] == ["failed", "succeeded"] and .items[0].error.code == "PERMISSION_DENIED"
    and all(.items[0:2][]; .permissionAuthorizationId)' <<<"$calls" >/dev/null || {
    echo "the audit does not show the two calls" >&2
    exit 1
}

if [ "${DEMO_EXIT:-}" = 1 ]; then
    step "Done; stopping the service"
else
    step "Done; the service goes on running"
    echo "address      $service"
    echo "gateway      $service/mcp  (token: $dir/agent-token)"
    echo "API          $service/api/openapi.json  (token: $dir/admin-token)"
    echo "try          $bin/bailiwick call mcp__demo__roll_dice '{}' --data-dir $dir"
    echo "stop         kill $(cat "$base/bailiwick.pid") $(cat "$base/bailiwick-demo.pid")"
fi
