#!/bin/bash
# The committed .sqlx is what our SQL was checked against.
#
#   deploy/sqlx.sh write              makes it anew
#   deploy/sqlx.sh check [cargo…]     proves that it is what would be written now; `cargo…` is the build
#                                     by which (so that a test run builds once)
#
# Both build the store against a Postgres of their own, which is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=${1:?write or check}
shift
build=("$@")
[ ${#build[@]} -gt 0 ] || build=(cargo check --workspace)

target=${CARGO_TARGET_DIR:-target}
proven=$target/sqlx.proven
digest() { find shared/store migrations .sqlx Cargo.lock -type f -print0 2>/dev/null | sort -z | xargs -0 sha256sum | sha256sum; }
if [ "$mode" = check ] && [ -f "$proven" ] && [ "$(cat "$proven")" = "$(digest)" ]; then
    echo ".sqlx is fresh (nothing changed since it was proven)"
    exit 0
fi

binaries() { # where initdb, postgres and psql are
    local dir
    for dir in "${BAILIWICK_PG_BIN:-}" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV) \
        "$(dirname "$(command -v initdb 2>/dev/null || echo /nowhere/initdb)")"; do
        [ -x "$dir/initdb" ] && [ -x "$dir/psql" ] && echo "$dir" && return
    done
    echo "no initdb and psql: deploy/install.sh installs them" >&2
    return 1
}
pg=$(binaries)

work=$(mktemp -d /tmp/blw-sqlx.XXXXXX)
as=()
if [ "$(id -u)" = 0 ]; then
    account=postgres
    id "$account" >/dev/null 2>&1 || account=nobody
    chown "$account" "$work"
    as=(setpriv --reuid "$account" --regid "$(id -g "$account")" --clear-groups)
fi
cleanup() {
    if [ -s "$work/data/postmaster.pid" ]; then
        kill -QUIT "$(head -1 "$work/data/postmaster.pid")" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap cleanup EXIT

# Only in memory as far as it goes: it lives for one build.
(cd "$work" && "${as[@]}" "$pg/initdb" --pgdata data --username postgres --auth trust --no-sync \
    --encoding UTF8 --locale C >/dev/null)
(cd "$work" && exec "${as[@]}" "$pg/postgres" -D data -k "$work" -c listen_addresses= -c fsync=off \
    -c full_page_writes=off >"$work/log" 2>&1 </dev/null) &
run() { "$pg/psql" -X -q -v ON_ERROR_STOP=1 -h "$work" "$@"; }
for _ in $(seq 200); do
    run -U postgres -d postgres -c 'SELECT' >/dev/null 2>&1 && break
    sleep 0.05
done
run -U postgres -d postgres -c 'CREATE ROLE bailiwick_owner LOGIN' -c 'CREATE ROLE bailiwick_app LOGIN' \
    -c 'CREATE DATABASE bailiwick OWNER bailiwick_owner'
for migration in migrations/*.sql; do
    run -U bailiwick_owner -d bailiwick -f "$migration" >/dev/null
done

mkdir "$work/sqlx"
# Only what is compiled writes.
touch shared/store/src/lib.rs
SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$work/sqlx" \
    STORE_DATABASE_URL="postgres://bailiwick_owner@localhost/bailiwick?host=$work" "${build[@]}"

if ! compgen -G "$work/sqlx/*.json" >/dev/null; then
    echo "the build compiled nothing: does another one run in $target?" >&2
    exit 1
fi
if [ "$mode" = write ]; then
    rm -rf .sqlx
    mkdir .sqlx
    cp "$work/sqlx/"*.json .sqlx/
    echo ".sqlx holds $(ls .sqlx | wc -l) queries"
elif diff -r .sqlx "$work/sqlx" >"$work/difference"; then
    echo ".sqlx is fresh ($(ls .sqlx | wc -l) queries)"
else
    head -20 "$work/difference" >&2
    echo ".sqlx is not what the SQL says: run \`make sqlx\` and commit it" >&2
    exit 1
fi
mkdir -p "$target"
digest >"$proven"
