#!/bin/bash
# Part of `make proof`: what the REST API answers is what its OpenAPI document says, whatever it is asked. Thousands of
# requests made from the document, fitting and not, as a superadmin and as a member; log in docs/proof/schemathesis.md.
#
# Takes the variables of run.sh, and EXAMPLES (a route, 50) and SEED (1).
set -euo pipefail
# shellcheck source=tests/proof/preamble.sh
. "$(dirname "$0")/preamble.sh"
needs_rig '' schemathesis
makes_work

PYTHONDONTWRITEBYTECODE=1 "$RIG_HOME/venv/schemathesis/bin/python" "$here/rest.py" \
    --rig "$shared/rig" --rig-home "$RIG_HOME" --bin "$bin" --work "$work" \
    --examples "${EXAMPLES:-50}" --seed "${SEED:-1}" --out "${REST_PROOF_OUT:-$root/docs/proof/schemathesis.md}"
