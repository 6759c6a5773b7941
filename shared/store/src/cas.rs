//! Content-addressed objects of a tenant: small bodies as rows, the index of larger ones.

use domain::{Timestamp, json::Sha256Digest};

use crate::{StoreError, Tx};

/// Where the bytes of an object are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Inline(Vec<u8>),
    /// In the object store, in this many chunks.
    Chunks(u32),
}

/// The object, if the tenant has it.
pub async fn find(tx: &mut Tx, digest: Sha256Digest) -> Result<Option<Place>, StoreError> {
    let row = sqlx::query!(
        "SELECT body, chunks FROM cas_objects WHERE tenant_id = $1 AND sha256 = $2",
        tx.tenant().0,
        digest.as_bytes(),
    )
    .fetch_optional(tx.conn())
    .await?;
    Ok(row.map(|row| match row.body {
        Some(body) => Place::Inline(body),
        None => Place::Chunks(row.chunks.unsigned_abs()),
    }))
}

/// Notes an object; nothing happens where the tenant has it already.
pub async fn insert(
    tx: &mut Tx,
    digest: Sha256Digest,
    size_bytes: i64,
    place: &Place,
    at: Timestamp,
) -> Result<(), StoreError> {
    let (body, chunks) = match place {
        Place::Inline(body) => (Some(body.as_slice()), 0),
        Place::Chunks(chunks) => (None, chunks.cast_signed()),
    };
    sqlx::query!(
        "INSERT INTO cas_objects (tenant_id, sha256, size_bytes, body, chunks, created_at)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        tx.tenant().0,
        digest.as_bytes(),
        size_bytes,
        body,
        chunks,
        at,
    )
    .execute(tx.conn())
    .await?;
    Ok(())
}
