#!/bin/bash
# Installs with apt what a build (and, with `tests`, what the tests) of Bailiwick needs, where it is
# missing. Asks for nothing when all is there. Where it cannot install, it says what is missing. What only
# the sandbox of stdio servers needs is installed too, and is no reason to fail.
#
#   deploy/install.sh [tests]
set -euo pipefail

tests=no
[ "${1:-}" = tests ] && tests=yes

# Cargo of rustup stands here, whether or not the shell knows.
[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ] && PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

packages=()
missing=()
wished=()
need() { # need <package> <what it is for> <test…>
    local package=$1 what=$2
    shift 2
    if ! "$@" >/dev/null 2>&1; then
        packages+=("$package")
        missing+=("$package ($what)")
    fi
}

wish() { # as need, for what a part of the service does without
    local before=${#missing[@]}
    need "$@"
    if [ "${#missing[@]}" -gt "$before" ]; then
        wished+=("${missing[$before]}")
        unset "missing[$before]"
    fi
}

# Postgres of any version; the private server of `up` and of the tests is run from its binaries.
have_postgres() {
    [ -n "${BAILIWICK_PG_BIN:-}" ] && [ -x "$BAILIWICK_PG_BIN/initdb" ] && return 0
    command -v initdb && command -v postgres && return 0
    local initdb
    for initdb in /usr/lib/postgresql/*/bin/initdb; do [ -x "$initdb" ] && return 0; done
    return 1
}
have_certificates() { [ -s /etc/ssl/certs/ca-certificates.crt ]; }

need gcc "the linker, and C parts of the TLS library" command -v cc
need libc6-dev "C headers" test -e /usr/include/stdio.h
need make "the Makefile" command -v make
need curl "the demo's REST calls" command -v curl
need jq "the demo's REST calls" command -v jq
need ca-certificates "trust in upstream servers" have_certificates
need postgresql "the binaries of the private database" have_postgres
[ $tests = yes ] && need procps "process checks of the tests" command -v ps
sandbox=wish
[ $tests = yes ] && sandbox=need
$sandbox bubblewrap "the sandbox of stdio servers" command -v bwrap
$sandbox util-linux "setpriv, by which a service that runs as root gives each of them an account" command -v setpriv

if [ ${#packages[@]} -gt 0 ]; then
    echo "missing: ${missing[*]} ${wished[*]}"
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            as_root=(sudo)
        else
            as_root=(no)
        fi
    fi
    if ! command -v apt-get >/dev/null || [ "${as_root[0]:-}" = no ]; then
        {
            echo
            echo "These cannot be installed from here (no apt-get, or neither root nor sudo). Please install:"
            printf '  %s\n' "${missing[@]}" "${wished[@]}"
            echo "On Debian or Ubuntu, as root:"
            echo "  apt-get install --no-install-recommends ${packages[*]}"
        } >&2
        [ ${#missing[@]} -gt 0 ] && exit 1
        packages=()
    fi
fi
if [ ${#packages[@]} -gt 0 ]; then
    # Only the binaries are wanted: no cluster of the distribution is made or started, also where a
    # Postgres already stands on the usual port.
    if printf '%s\n' "${packages[@]}" | grep -qx postgresql && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
        "${as_root[@]}" mkdir -p /etc/postgresql-common
        printf 'create_main_cluster = false\n' |
            "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
    fi
    install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=120
        install --no-install-recommends -o Dpkg::Options::=--force-confold "${packages[@]}")
    # Lists that are there are tried first; most machines have them.
    "${install[@]}" || { "${as_root[@]}" apt-get -q update && "${install[@]}"; } ||
        [ ${#missing[@]} -eq 0 ]
fi

if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust 1.95 or newer with https://rustup.rs, then run this again" >&2
    exit 1
fi
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml" | head -1)
found=$(rustc --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$wanted" "${found%%-*}" | sort -V | head -1)" != "$wanted" ]; then
    echo "rustc $found is too old: $wanted or newer is needed (rustup update stable)" >&2
    exit 1
fi

if [ $tests = yes ] && ! cargo nextest --version >/dev/null 2>&1; then
    echo "installing cargo-nextest, the test runner"
    # Into its own target directory: it is built once, with its own features.
    cargo install --locked --quiet cargo-nextest
fi
