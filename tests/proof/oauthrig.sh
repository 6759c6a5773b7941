#!/bin/bash
# Part of `make proof`: people connect to the rig's authorization server with its faults, through the service; what came
# is in docs/proof/oauthrig.md.
#
# Takes the variables of run.sh, and OAUTH_PROOF_OUT, the page that is written.
set -euo pipefail
# shellcheck source=tests/proof/preamble.sh
. "$(dirname "$0")/preamble.sh"
needs_rig '' oauth
makes_work

PYTHONDONTWRITEBYTECODE=1 python3 "$here/oauthrig.py" \
    --rig "$shared/rig" --rig-home "$RIG_HOME" --bin "$bin" --work "$work" \
    --out "${OAUTH_PROOF_OUT:-$root/docs/proof/oauthrig.md}"
