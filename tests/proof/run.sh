#!/bin/bash
# `make proof`: what real MCP servers and real MCP clients see of the gateway.
#
# Needs the rig of real peers beside the checkout; without it nothing is proven, and that is said.
#
#   SHARED              the folder that holds rig/ and mcp-schema/ (../shared beside the checkout)
#   BIN_DIR             where the programs are (target/debug)
#   RIG_HOME            where the rig keeps what it installed (its own default)
#   PROOF_OUT           the page of proofs that is written (docs/proof/peers.md)
#   PROOF_BUGS          the page of bug reports that is written (docs/proof/bugs.md)
#   PROOF_TABLE         the table that is written (docs/compatibility.md)
#   PROOF_KEEP=1        keep the working directory, with the log of every process
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

shared=${SHARED:-$root/../shared}
if [ ! -x "$shared/rig/run.sh" ] || [ ! -d "$shared/mcp-schema" ]; then
    echo "proof: nothing was proven: $shared has no rig/ and mcp-schema/ (set SHARED)"
    exit 0
fi
shared=$(cd "$shared" && pwd)
built=$(cd "${BIN_DIR:-$root/target/debug}" && pwd)

"$shared/rig/install.sh" servers python inspector remote langchain pyservers
# shellcheck source=/dev/null
. "$shared/rig/env.sh"

# The private Postgres of root runs as another account, which must pass through.
work=$(mktemp -d "${TMPDIR:-/tmp}/proof.XXXXXXXX")
chmod 711 "$work"
# The same programs throughout, whatever is built meanwhile.
bin=$work/bin
mkdir "$bin"
cp "$built/bailiwick" "$built/bailiwick-demo" "$bin/"
finish() {
    status=$?
    trap - EXIT
    if [ "${PROOF_KEEP:-}" = 1 ]; then echo "kept: $work"; else rm -rf "$work"; fi
    exit "$status"
}
trap finish EXIT

# The rig's own environment has a JSON Schema validator, pinned with the rest.
PYTHONDONTWRITEBYTECODE=1 "$RIG_HOME/venv/mcp1/bin/python" "$here/prove.py" \
    --rig "$shared/rig" --rig-home "$RIG_HOME" --schemas "$shared/mcp-schema" \
    --bin "$bin" --work "$work" --out "${PROOF_OUT:-$root/docs/proof/peers.md}" \
    --compatibility "${PROOF_TABLE:-$root/docs/compatibility.md}" --guide "$root/docs/guides/clients.md" \
    --bugs "${PROOF_BUGS:-$root/docs/proof/bugs.md}" "$@"

# Asked for a part of it, that is all.
if [ $# = 0 ]; then
    BIN_DIR="$bin" SHARED="$shared" "$here/schemathesis.sh"
fi
