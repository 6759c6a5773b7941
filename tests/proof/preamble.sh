# What every proof begins with; sourced, by a script beside it that says `set -euo pipefail`.
#
# Takes the variables that run.sh names. Leaves: root (of the checkout), here (this folder), shared and the environment of the
# rig, work (a directory that goes at the end), bin (copies of the programs).
# shellcheck shell=bash

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

# Installs these parts of the rig; without the rig, or without a folder that stands beside it, nothing is proven, and that is said.
needs_rig() { # needs_rig <folder besides rig, or ''> <part…>
    shared=${SHARED:-$root/../shared}
    local beside=$1
    shift
    if [ ! -x "$shared/rig/run.sh" ] || [ ! -d "$shared/$beside" ]; then
        echo "proof: nothing was proven: $shared has no rig/${beside:+ and $beside/} (set SHARED)"
        exit 0
    fi
    shared=$(cd "$shared" && pwd)
    "$shared/rig/install.sh" "$@"
    # shellcheck source=/dev/null
    . "$shared/rig/env.sh"
}

# Makes work and bin: the same programs throughout, whatever is built meanwhile.
makes_work() {
    local built
    built=$(cd "${BIN_DIR:-$root/target/debug}" && pwd)
    # The private Postgres of root runs as another account, which must pass through.
    work=$(mktemp -d "${TMPDIR:-/tmp}/proof.XXXXXXXX")
    chmod 711 "$work"
    trap finish EXIT
    bin=$work/bin
    mkdir "$bin"
    cp "$built/bailiwick" "$built/bailiwick-demo" "$bin/"
}

finish() {
    local status=$?
    trap - EXIT
    if [ "${PROOF_KEEP:-}" = 1 ]; then echo "kept: $work"; else rm -rf "$work"; fi
    exit "$status"
}
