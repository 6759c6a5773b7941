//! Immutable bodies in an object store.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Code, Error};
use object_store::{
    ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, local::LocalFileSystem,
    path::Path,
};
use url::Url;

/// An object store; keys look like `<tenant>/<sha256 hex>/<n>`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
}

impl Blobs {
    /// The store at `url`: an existing directory as `file:///…`. Other schemes are refused
    /// (`SERVER_MISCONFIGURED`), so are directories that cannot be opened.
    pub fn at(url: &Url) -> Result<Self, Error> {
        let misconfigured = |words: &str| Error::new(Code::ServerMisconfigured, words);
        if url.scheme() != "file" {
            return Err(misconfigured("the object store must be a file URL"));
        }
        let directory = url
            .to_file_path()
            .map_err(|()| misconfigured("the object store's URL is not a path of this machine"))?;
        // What is put must outlive the machine's power, as the row that names it does.
        let store = LocalFileSystem::new_with_prefix(directory)
            .map_err(|error| misconfigured("the object store cannot be opened").because(error))?
            .with_fsync(true);
        Ok(Self { store: Arc::new(store) })
    }

    /// Stores `body` under `key`, durably, unless something of this key is there already: keys name
    /// their content, so it is the same.
    pub async fn put(&self, key: &str, body: Bytes) -> Result<(), Error> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.store.put_opts(&path(key)?, PutPayload::from_bytes(body), options).await;
        match put {
            Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// `NOT_FOUND` where there is none.
    pub async fn get(&self, key: &str) -> Result<Bytes, Error> {
        let found = self.store.get(&path(key)?).await.map_err(missing)?;
        found.bytes().await.map_err(missing)
    }

    /// Success too where there is none.
    pub async fn delete(&self, key: &str) -> Result<(), Error> {
        match self.store.delete(&path(key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }
}

fn path(key: &str) -> Result<Path, Error> {
    Path::parse(key).map_err(Error::internal)
}

fn missing(error: object_store::Error) -> Error {
    match error {
        object_store::Error::NotFound { .. } => Error::not_found("stored body").because(error),
        other => unavailable(other),
    }
}

fn unavailable(error: object_store::Error) -> Error {
    Error::new(Code::Unavailable, "the object store does not answer").because(error)
}
