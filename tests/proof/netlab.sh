#!/bin/bash
# Part of `make proof`: the service with its guard on, in the rig's network lab: a namespace with a public address, an intranet,
# a metadata trap and a DNS that lies. What was tried is in docs/proof/netlab.md.
#
# Needs root and network namespaces. Takes the variables of run.sh, and NETLAB_PROOF_OUT, the page that is written.
set -euo pipefail
# shellcheck source=tests/proof/preamble.sh
. "$(dirname "$0")/preamble.sh"
needs_rig '' python
if [ "$(id -u)" != 0 ] || ! unshare --net true 2>/dev/null || ! command -v ip >/dev/null; then
    echo "netlab: nothing was proven: it needs root, network namespaces and ip"
    exit 0
fi
if ip netns list | grep -qw gwlab; then
    echo "netlab: the lab is up already: somebody else uses it" >&2
    exit 1
fi
makes_work
leave() {
    local status=$?
    "$shared/rig/netlab.sh" down || true
    (exit "$status") || true
    if [ "${PROOF_KEEP:-}" = 1 ]; then echo "kept: $work"; else rm -rf "$work"; fi
    exit "$status"
}
trap leave EXIT
"$shared/rig/netlab.sh" up

# An authority of our own, for the names of the lab.
(
    cd "$work"
    names=$(printf 'DNS:*.%s.test,' example rebind meta lan mixed slow nx)
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=lab -keyout ca.key -out ca.pem
    openssl req -newkey rsa:2048 -nodes -subj /CN=lab-peer -keyout peer.key -out peer.csr
    openssl x509 -req -in peer.csr -CA ca.pem -CAkey ca.key -days 2 -CAcreateserial -out peer.pem \
        -extfile <(echo "subjectAltName=${names%,}")
) 2>"$work/openssl.log" || { cat "$work/openssl.log" >&2; exit 1; }

PYTHONDONTWRITEBYTECODE=1 "$shared/rig/netlab.sh" exec "$RIG_HOME/venv/mcp1/bin/python" "$here/netlab.py" \
    --rig "$shared/rig" --rig-home "$RIG_HOME" --bin "$bin" --work "$work" \
    --out "${NETLAB_PROOF_OUT:-$root/docs/proof/netlab.md}"
