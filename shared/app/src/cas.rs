//! Content-addressed bytes of a tenant: small ones in Postgres, larger ones as immutable chunks in the
//! object store. Read back, they are hashed again: a mismatch is an error, never data.

use bytes::{Bytes, BytesMut};
use domain::{Error, ids::TenantId, json::Sha256Digest, limits};
use store::cas::Place;

use crate::Ctx;

/// Stores `bytes` unless the tenant has them; answers their name. A crash between chunks and row
/// leaves chunks that the next put of the same bytes completes.
pub(crate) async fn put(ctx: &Ctx, tenant: TenantId, bytes: &[u8]) -> Result<Sha256Digest, Error> {
    let digest = Sha256Digest::of(bytes);
    let place = if bytes.len() <= limits::CAS_INLINE_BYTES.size() {
        Place::Inline(bytes.to_vec())
    } else {
        let mut chunks = 0;
        for chunk in bytes.chunks(limits::CAS_CHUNK_BYTES.size()) {
            ctx.blobs.put(&key(tenant, digest, chunks), Bytes::copy_from_slice(chunk)).await?;
            chunks += 1;
        }
        Place::Chunks(chunks)
    };
    let size = i64::try_from(bytes.len()).map_err(Error::internal)?;
    let mut tx = ctx.begin(tenant).await?;
    store::cas::insert(&mut tx, digest, size, &place, ctx.now()).await?;
    tx.commit().await?;
    Ok(digest)
}

/// The bytes with this name; `None` if the tenant has none.
pub async fn get(
    ctx: &Ctx,
    tenant: TenantId,
    digest: Sha256Digest,
) -> Result<Option<Bytes>, Error> {
    let mut tx = ctx.begin(tenant).await?;
    let place = store::cas::find(&mut tx, digest).await?;
    tx.commit().await?;
    let bytes = match place {
        None => return Ok(None),
        Some(Place::Inline(body)) => Bytes::from(body),
        Some(Place::Chunks(chunks)) => {
            let mut all = BytesMut::new();
            for chunk in 0..chunks {
                all.extend_from_slice(&ctx.blobs.get(&key(tenant, digest, chunk)).await?);
            }
            all.freeze()
        }
    };
    if Sha256Digest::of(&bytes) != digest {
        return Err(Error::internal(format!("stored object {digest} has other bytes")));
    }
    Ok(Some(bytes))
}

fn key(tenant: TenantId, digest: Sha256Digest, chunk: u32) -> String {
    format!("{tenant}/{digest}/{chunk}")
}
