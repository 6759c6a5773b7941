#!/bin/bash
# Part of `make proof`: what the REST API answers is what its OpenAPI document says, whatever it is asked. Thousands of
# requests made from the document, fitting and not, as a superadmin and as a member; log in docs/proof/schemathesis.md.
#
# Takes the variables of run.sh, and EXAMPLES (a route, 50) and SEED (1).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

shared=${SHARED:-$root/../shared}
if [ ! -x "$shared/rig/run.sh" ]; then
    echo "proof: nothing was proven: $shared has no rig/ (set SHARED)"
    exit 0
fi
shared=$(cd "$shared" && pwd)
built=$(cd "${BIN_DIR:-$root/target/debug}" && pwd)

"$shared/rig/install.sh" schemathesis
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

PYTHONDONTWRITEBYTECODE=1 "$RIG_HOME/venv/schemathesis/bin/python" "$here/rest.py" \
    --rig "$shared/rig" --rig-home "$RIG_HOME" --bin "$bin" --work "$work" \
    --examples "${EXAMPLES:-50}" --seed "${SEED:-1}" --out "${REST_PROOF_OUT:-$root/docs/proof/schemathesis.md}"
