//! Who may run how many programs, and who gives way.

use domain::{
    Code,
    ids::{TenantId, UserId},
    limits,
};
use outbound::mcp::{McpClients, SessionKey, Target, is_session_lost};
use tests::{
    children::{alive, until_alive},
    upstream::{call, raw, soon, tool_call},
};
use uuid::Uuid;

use super::peer;

const PERSON: usize = limits::STDIO_OWN_PERSON.size();
const TENANT: usize = limits::STDIO_OWN_TENANT.size();
/// The input of a call that is at work for a while.
const SLEEP: &str = r#"{"count":1500}"#;

/// An upstream session of its own of that person.
fn own(server: &Target, tenant: u128, person: u128) -> Target {
    let mut target = server.clone();
    target.key.tenant = TenantId(Uuid::from_u128(tenant));
    let person = UserId(Uuid::from_u128(person));
    target.key.session = Some(SessionKey { id: Uuid::new_v4(), person });
    target
}

/// The client that all of a tenant share, of one server among many.
fn shared(server: &Target, tenant: u128, revision: usize) -> Target {
    let mut target = server.clone();
    target.key.tenant = TenantId(Uuid::from_u128(tenant));
    target.key.revision = i64::try_from(revision).unwrap();
    target
}

async fn open(clients: &McpClients, target: &Target) -> Result<(), Code> {
    let opened = clients.open(target, &raw("{}"), "2025-11-25", soon()).await;
    opened.map(drop).map_err(|error| error.code)
}

async fn is_open(clients: &McpClients, target: &Target) -> bool {
    match call(clients, target, tool_call("echo", "{}")).await {
        Ok(_) => true,
        Err(failure) => {
            assert!(is_session_lost(&failure.error), "{}", failure.error);
            false
        }
    }
}

#[tokio::test]
async fn one_tenant_takes_nothing_that_another_needs() {
    let (clients, server, marker) = peer(&[]);
    // Everybody of the first opens as many as they like.
    let mut greedy = Vec::new();
    for person in 0..4 {
        for _ in 0..=PERSON {
            let target = own(&server, 1, person);
            open(&clients, &target).await.unwrap();
            greedy.push(target);
        }
    }
    until_alive(&marker, TENANT).await;
    for revision in 0..limits::STDIO_TENANT.size() {
        clients.discover(&shared(&server, 1, revision), false, soon()).await.unwrap();
    }
    until_alive(&marker, limits::STDIO_TENANT.size()).await;

    let mine: Vec<Target> = (0..PERSON).map(|_| own(&server, 2, 99)).collect();
    for target in &mine {
        open(&clients, target).await.unwrap();
    }
    for revision in 0..limits::STDIO_CHILDREN.size() - limits::STDIO_TENANT.size() - PERSON {
        clients.discover(&shared(&server, 2, revision), false, soon()).await.unwrap();
    }
    for target in &mine {
        assert!(is_open(&clients, target).await, "nobody of the other tenant ends it");
    }
    // All places are taken, and the first has more than half of them.
    clients.discover(&shared(&server, 2, 1_000), false, soon()).await.unwrap();
    until_alive(&marker, limits::STDIO_CHILDREN.size()).await;
    for target in &mine {
        assert!(is_open(&clients, target).await);
    }
    clients.close_all(soon()).await;
    assert!(alive(&marker).is_empty());
}

#[tokio::test]
async fn the_session_that_a_person_used_least_ends_and_its_holder_is_told() {
    let (clients, server, marker) = peer(&[]);
    let mine: Vec<Target> = (0..PERSON).map(|_| own(&server, 1, 1)).collect();
    for target in &mine {
        open(&clients, target).await.unwrap();
    }
    assert!(is_open(&clients, &mine[0]).await);
    let mut working = Box::pin(call(&clients, &mine[1], tool_call("sleep", SLEEP)));
    assert!(futures::poll!(&mut working).is_pending());
    let mut heard = clients.listen(&mine[2], None, soon()).await.unwrap();
    let next = own(&server, 1, 1);
    open(&clients, &next).await.unwrap();
    assert!(!is_open(&clients, &mine[2]).await, "it only listened");
    assert!(heard.next().await.is_none(), "who listened hears the end");
    assert!(is_open(&clients, &mine[0]).await && is_open(&clients, &next).await);
    working.await.unwrap();
    until_alive(&marker, PERSON).await;
}

#[tokio::test]
async fn what_is_at_work_is_never_ended_for_more() {
    let (clients, server, marker) = peer(&[]);
    let mine: Vec<Target> = (0..PERSON).map(|_| own(&server, 1, 1)).collect();
    let mut working = Vec::new();
    for target in &mine {
        open(&clients, target).await.unwrap();
        let mut work = Box::pin(call(&clients, target, tool_call("sleep", SLEEP)));
        assert!(futures::poll!(&mut work).is_pending());
        working.push(work);
    }
    assert_eq!(open(&clients, &own(&server, 1, 1)).await, Err(Code::RateLimitQueueFull));
    open(&clients, &own(&server, 1, 2)).await.unwrap();
    for answer in futures::future::join_all(working).await {
        answer.unwrap();
    }
    assert_eq!(alive(&marker).len(), PERSON + 1);
}

#[tokio::test]
async fn a_shared_client_that_nobody_uses_gives_way_to_the_next_of_its_tenant() {
    let (clients, server, marker) = peer(&[]);
    let most = limits::STDIO_TENANT.size();
    for revision in 0..=most {
        clients.discover(&shared(&server, 1, revision), false, soon()).await.unwrap();
    }
    until_alive(&marker, most).await;
    // It is started again as if nothing had been.
    call(&clients, &shared(&server, 1, 0), tool_call("echo", "{}")).await.unwrap();
    clients.close_all(soon()).await;
    assert!(alive(&marker).is_empty());
}
