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
# shellcheck source=tests/proof/preamble.sh
. "$(dirname "$0")/preamble.sh"
needs_rig mcp-schema oauth servers python inspector remote langchain pyservers
makes_work

# The rig's own environment has a JSON Schema validator, pinned with the rest.
PYTHONDONTWRITEBYTECODE=1 "$RIG_HOME/venv/mcp1/bin/python" "$here/prove.py" \
    --rig "$shared/rig" --rig-home "$RIG_HOME" --schemas "$shared/mcp-schema" \
    --bin "$bin" --work "$work" --out "${PROOF_OUT:-$root/docs/proof/peers.md}" \
    --compatibility "${PROOF_TABLE:-$root/docs/compatibility.md}" --guide "$root/docs/guides/clients.md" \
    --bugs "${PROOF_BUGS:-$root/docs/proof/bugs.md}" "$@"

# Asked for a part of it, that is all.
if [ $# = 0 ]; then
    for part in schemathesis oauthrig netlab consent; do
        BIN_DIR="$bin" SHARED="$shared" "$here/$part.sh"
    done
fi
