//! Redirects of requests that a credential goes with.

use domain::Code;
use tests::peer::{Answer, Peer, Setup, tool};

use super::{Scene, lab::keyed};

fn moved() -> Setup {
    Setup { tools: vec![tool("moved")], ..Setup::modern() }
}

fn bearers(peer: &Peer) -> Vec<(String, String)> {
    let calls = peer.calls().into_iter();
    calls.map(|call| (call.path.clone(), call.header("authorization").to_owned())).collect()
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_with_the_credential() {
    let (scene, peer) = keyed(moved()).await;
    peer.script(
        "moved",
        [Answer::redirect(307, "/mcp/"), Answer::redirect(308, "/mcp"), Answer::Echo],
    );
    assert_eq!(scene.code(&scene.root, "moved").await, Ok(()));
    let sent = |path: &str| (path.to_owned(), "Bearer sesame-1".to_owned());
    assert_eq!(bearers(&peer), [sent("/mcp"), sent("/mcp/"), sent("/mcp")]);
}

/// How a call ends that is redirected after `meanwhile` was done; only the first request may leave.
async fn redirected(scene: &Scene, peer: &Peer, meanwhile: impl Future<Output = ()>) -> Code {
    let before = peer.calls().len();
    peer.answer("moved", Answer::redirect(307, "/mcp/").held());
    let change = async {
        peer.until("holding", |peer| peer.held() == 1).await;
        meanwhile.await;
        peer.release();
    };
    let (code, ()) = futures::join!(scene.code(&scene.root, "moved"), change);
    peer.hold();
    assert_eq!(peer.calls().len(), before + 1, "the second request was not sent");
    code.unwrap_err()
}

#[tokio::test]
async fn each_hop_is_asked_about_again() {
    let (scene, peer) = keyed(moved()).await;
    let off = scene.switch(false);
    assert_eq!(redirected(&scene, &peer, off).await, Code::SourceDisabled);
    scene.switch(true).await;
    let replaced = scene.put_secret(&scene.root, "sesame-2");
    assert_eq!(redirected(&scene, &peer, replaced).await, Code::ServerChanged);
    assert!(bearers(&peer).iter().all(|(_, sent)| sent == "Bearer sesame-1"));
    // And with the new one from the start.
    peer.script("moved", [Answer::redirect(307, "/mcp/"), Answer::Echo]);
    assert_eq!(scene.code(&scene.root, "moved").await, Ok(()));
    let calls = bearers(&peer);
    assert!(calls[calls.len() - 2..].iter().all(|(_, sent)| sent == "Bearer sesame-2"));
}

#[tokio::test]
async fn no_redirect_leads_to_another_origin() {
    let (scene, peer) = keyed(moved()).await;
    let other = Peer::start(Setup::modern()).await;
    for status in [301, 302, 303, 307, 308] {
        peer.answer("moved", Answer::redirect(status, other.url().as_str()));
        assert_eq!(scene.code(&scene.root, "moved").await, Err(Code::UpstreamFormat), "{status}");
    }
    let another_name = format!("http://localhost:{}/mcp", peer.address().port());
    peer.answer("moved", Answer::redirect(308, &another_name));
    let before = peer.calls().len();
    assert_eq!(scene.code(&scene.root, "moved").await, Err(Code::UpstreamFormat));
    assert_eq!(peer.calls().len(), before + 1);
    peer.answer("moved", Answer::redirect(307, "/mcp"));
    assert_eq!(scene.code(&scene.root, "moved").await, Err(Code::UpstreamFormat), "in a circle");
    assert!(other.journal().is_empty());
}
