//! Bodies in a directory.

use domain::Code;
use outbound::blobs::Blobs;
use url::Url;

const KEY: &str = "00000000-0000-0000-0000-000000000001/2cf24dba5fb0a30e/0";

#[tokio::test]
async fn a_body_is_kept_once_under_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = Blobs::at(&Url::from_directory_path(directory.path()).unwrap()).unwrap();
    assert_eq!(blobs.get(KEY).await.unwrap_err().code, Code::NotFound);
    blobs.put(KEY, "hello".into()).await.unwrap();
    // A key names its content: what is there stays.
    blobs.put(KEY, "other".into()).await.unwrap();
    assert_eq!(blobs.get(KEY).await.unwrap(), "hello");
    let again = Blobs::at(&Url::from_directory_path(directory.path()).unwrap()).unwrap();
    assert_eq!(again.get(KEY).await.unwrap(), "hello");
    blobs.delete(KEY).await.unwrap();
    blobs.delete(KEY).await.unwrap();
    assert_eq!(blobs.get(KEY).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_key_cannot_leave_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = Blobs::at(&Url::from_directory_path(directory.path()).unwrap()).unwrap();
    for key in ["../outside", "a/../../outside", "a//b"] {
        assert!(blobs.put(key, "x".into()).await.is_err(), "{key}");
    }
}

#[test]
fn other_stores_than_directories_are_refused() {
    for url in ["s3://bucket/", "https://host.example/", "file:///no/such/directory"] {
        let refused = Blobs::at(&url.parse().unwrap()).unwrap_err();
        assert_eq!(refused.code, Code::ServerMisconfigured, "{url}");
    }
}
