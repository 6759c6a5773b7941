#!/bin/bash
# Part of `make proof`: people connect their accounts in a real browser, through the consent page of the rig's authorization
# server. Takes the variables of run.sh, and those of ../browser/run.sh.
#
#   PROOF_CONSENT   the page that is written (docs/proof/consent.md)
set -euo pipefail
# shellcheck source=tests/proof/preamble.sh
. "$(dirname "$0")/preamble.sh"
needs_rig '' oauth

rig=$shared/rig/oauthrig
"$rig/stop.sh" >/dev/null 2>&1 || true
trap '"$rig/stop.sh" >/dev/null 2>&1 || true' EXIT
"$rig/start.sh"
curl -fsS -o /dev/null -H 'content-type: application/json' -d '{"autoConsent": false}' http://localhost:7200/__ctl

walked=$(PROTECTED=http://localhost:7210/mcp PROVIDER=http://localhost:7200/ JOURNEYS='^connect' \
    "$root/tests/browser/run.sh" | tee /dev/stderr)
cat >"${PROOF_CONSENT:-$root/docs/proof/consent.md}" <<PAGE
# Connecting through a consent page that is not ours

Written by \`make proof\` (tests/proof/consent.sh). The journeys of tests/browser that connect an account, in headless Chromium, through the
pages of an authorization server that is built on oidc-provider and the TypeScript SDK's resource server. Each is walked to its end.

$(sed -n 's/^ok /- /p' <<<"$walked")
PAGE
