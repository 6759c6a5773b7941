//! What must hold after a crash, whatever was going on.

use std::{collections::BTreeMap, time::Duration};

use sqlx::PgPool;
use tokio::time::Instant;

use super::scene::Scene;

/// How calls ended: by label, oldest first, status and error code.
pub(super) type Records = BTreeMap<String, Vec<(String, Option<String>)>>;

/// Interfaces, "After a crash".
const SETTLED: Duration = Duration::from_secs(30);

/// Waits until every call is final and every question has an owner or an expiry, 30 s at most; then
/// looks at everything else that must hold, and gives the records.
pub(super) async fn settled(scene: &Scene, pool: &PgPool) -> Records {
    let begin = Instant::now();
    loop {
        let open = open(pool).await;
        if open.is_empty() {
            break;
        }
        assert!(begin.elapsed() < SETTLED, "open after 30 s: {open:?}; {}", scene.house.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let records = records(pool).await;
    compare(scene, &records);
    nothing(pool, "records without exactly one leaf", LEAVES).await;
    nothing(pool, "authorizations without exactly one leaf", AUTHORIZATION_LEAVES).await;
    nothing(pool, "closed calls without exactly one event", EVENTS).await;
    nothing(pool, "records and live rows that differ", DIFFERENT).await;
    nothing(pool, "results that are named and not there", RESULTS).await;
    records
}

/// The server's own journal: no execution without a record, none twice.
fn compare(scene: &Scene, records: &Records) {
    for peer in [&scene.still, &scene.prompt] {
        let mut executions: BTreeMap<String, usize> = BTreeMap::new();
        for call in peer.calls() {
            let arguments: serde_json::Value =
                serde_json::from_str(call.arguments.as_deref().unwrap()).unwrap();
            *executions.entry(arguments["label"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        for (label, times) in executions {
            assert_eq!(times, 1, "{label} was executed more than once");
            assert!(records.contains_key(&label), "{label} was executed and is not in the audit");
        }
    }
}

async fn open(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT 'record ' || invocation_id FROM invocations WHERE status IS NULL
         UNION ALL
         SELECT 'live row ' || invocation_id FROM tool_calls WHERE ended_at IS NULL
         UNION ALL
         SELECT 'question ' || permission_request_id FROM permission_requests r
         WHERE state = 'pending' AND (expires_at IS NULL OR detached_at IS NULL)
           AND NOT EXISTS (SELECT FROM nodes n WHERE n.node_id = r.node_id AND n.ended_at IS NULL
                           AND n.lease_expires_at > clock_timestamp())",
    )
    .fetch_all(pool)
    .await
    // Postgres may be coming back.
    .unwrap_or_else(|error| vec![error.to_string()])
}

pub(super) async fn records(pool: &PgPool) -> Records {
    let rows: Vec<(String, String, Option<String>)> = sqlx::query_as(
        "SELECT coalesce(convert_from(o.body, 'UTF8')::jsonb -> 'input' ->> 'label', '?'), i.status,
                i.error_code
         FROM invocations i
         JOIN cas_objects o ON o.tenant_id = i.tenant_id AND o.sha256 = i.request_sha256
         ORDER BY i.invocation_id",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut records = Records::new();
    for (label, status, code) in rows {
        records.entry(label).or_default().push((status, code));
    }
    records
}

/// `succeeded`, or the error code, of a call that was made once.
pub(super) fn end_of(records: &Records, label: &str) -> String {
    let ends = records.get(label).map(Vec::as_slice).unwrap_or_default();
    let [(status, code)] = ends else { panic!("{label}: {ends:?}") };
    code.clone().unwrap_or_else(|| status.clone())
}

async fn nothing(pool: &PgPool, what: &str, sql: &'static str) {
    let found: Vec<String> = sqlx::query_scalar(sql).fetch_all(pool).await.unwrap();
    assert!(found.is_empty(), "{what}: {found:?}");
}

const LEAVES: &str = "
    SELECT i.invocation_id::text FROM invocations i
    WHERE 1 <> (SELECT count(*) FROM audit_leaves l WHERE l.tenant_id = i.tenant_id
                  AND l.kind = 'invocation' AND l.subject_id = i.invocation_id)
    UNION ALL
    SELECT l.subject_id::text FROM audit_leaves l WHERE l.kind = 'invocation'
      AND NOT EXISTS (SELECT FROM invocations i WHERE i.invocation_id = l.subject_id)";

const AUTHORIZATION_LEAVES: &str = "
    SELECT a.authorization_id::text FROM permission_authorizations a
    WHERE 1 <> (SELECT count(*) FROM audit_leaves l WHERE l.tenant_id = a.tenant_id
                  AND l.kind = 'authorization' AND l.subject_id = a.authorization_id)";

const EVENTS: &str = "
    SELECT i.invocation_id::text FROM invocations i
    WHERE 1 <> (SELECT count(*) FROM events e WHERE e.session_id = i.session_id
                  AND e.type = 'invocation.finished'
                  AND e.data ->> 'invocationId' = i.invocation_id::text)";

/// One that was sent, or succeeded, names the authorization that let it.
const DIFFERENT: &str = "
    SELECT i.invocation_id::text FROM invocations i
    FULL JOIN tool_calls c ON c.tenant_id = i.tenant_id AND c.invocation_id = i.invocation_id
    WHERE i.invocation_id IS NULL OR c.invocation_id IS NULL
       OR i.authorization_id IS DISTINCT FROM c.authorization_id
       OR i.finished_at IS DISTINCT FROM c.ended_at
       OR (i.status = 'succeeded' AND i.authorization_id IS NULL)
       OR (i.authorization_id IS NOT NULL AND NOT EXISTS (
             SELECT FROM permission_authorizations a WHERE a.authorization_id = i.authorization_id))";

const RESULTS: &str = "
    SELECT i.invocation_id::text FROM invocations i
    WHERE (i.status = 'succeeded' AND (i.raw_sha256 IS NULL OR i.result_sha256 IS NULL))
       OR EXISTS (SELECT FROM unnest(ARRAY[i.raw_sha256, i.result_sha256]) AS named (sha256)
                  WHERE named.sha256 IS NOT NULL AND NOT EXISTS (
                    SELECT FROM cas_objects o
                    WHERE o.tenant_id = i.tenant_id AND o.sha256 = named.sha256))";
