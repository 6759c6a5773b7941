use uuid::Uuid;

use super::*;

fn shared(tenant: u128) -> Holder {
    Holder { tenant: TenantId(Uuid::from_u128(tenant)), person: None }
}

fn own(tenant: u128, person: u128) -> Holder {
    Holder { person: Some(UserId(Uuid::from_u128(person))), ..shared(tenant) }
}

/// Takes so many, with nothing at work in them.
async fn idle(places: &Places, holder: Holder, count: usize) -> Vec<Place> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(places.take(holder).await.unwrap().0);
    }
    taken
}

async fn busy(places: &Places, holder: Holder, count: usize) -> Vec<(Place, Work)> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(places.take(holder).await.unwrap());
    }
    taken
}

fn gone(taken: &[Place]) -> usize {
    taken.iter().filter(|place| place.end.is_cancelled()).count()
}

/// How many get a place at once. The process of whoever gives way stays in these tests.
async fn get(places: &Places, holder: Holder, count: usize) -> usize {
    let mut got = 0;
    let mut kept = Vec::new();
    for _ in 0..count {
        if let Ok(place) = places.wait_for(holder).await {
            got += 1;
            kept.push(place);
        }
    }
    got
}

const PERSON: usize = limits::STDIO_OWN_PERSON.size();
const TENANT: usize = limits::STDIO_OWN_TENANT.size();

#[tokio::test]
async fn the_least_used_session_of_a_person_gives_way_to_the_next() {
    let places = Places::new();
    let taken = idle(&places, own(1, 1), PERSON).await;
    drop(taken[0].uses().begin().unwrap());
    places.wait_for(own(1, 1)).await.unwrap();
    assert!(taken[1].end.is_cancelled() && gone(&taken) == 1);
    assert!(taken[1].uses().begin().is_none(), "nothing begins in what has to go");
}

#[tokio::test]
async fn what_is_at_work_is_not_ended_and_nobody_gets_more() {
    let places = Places::new();
    let taken = busy(&places, own(1, 1), PERSON).await;
    let error = places.take(own(1, 1)).await.unwrap_err();
    assert_eq!(error.code, Code::RateLimitQueueFull);
    assert!(taken.iter().all(|(place, _)| !place.end.is_cancelled()));
    assert_eq!(get(&places, own(1, 2), PERSON).await, PERSON, "another person has a place");
}

#[tokio::test]
async fn a_person_without_any_gets_what_others_of_the_tenant_have_too_much_of() {
    let places = Places::new();
    let one = idle(&places, own(1, 1), PERSON).await;
    let two = idle(&places, own(1, 2), TENANT - PERSON).await;
    assert_eq!(get(&places, own(1, 3), 3).await, 3);
    assert_eq!(gone(&one) + gone(&two), 3);
}

#[tokio::test(start_paused = true)]
async fn one_tenant_cannot_take_the_sessions_of_another() {
    let places = Places::new();
    let mut taken = Vec::new();
    for person in 0..10 {
        for _ in 0..PERSON {
            // All of them at work.
            taken.extend(places.take(own(1, person)).await.ok());
        }
    }
    assert_eq!(taken.len(), TENANT);
    assert_eq!(get(&places, own(2, 99), PERSON).await, PERSON);
    assert_eq!(get(&places, shared(2), 8).await, 8);
}

#[tokio::test]
async fn own_sessions_leave_places_for_shared_clients() {
    let places = Places::new();
    let mut taken = Vec::new();
    for tenant in 0..8 {
        for person in 0..8 {
            for _ in 0..PERSON {
                let mut held = places.0.taken();
                if held.room(own(tenant, person)) == Room::Free {
                    taken.push(places.put(&mut held, own(tenant, person)));
                }
            }
        }
    }
    let most = limits::STDIO_CHILDREN.size() - limits::STDIO_SHARED.size();
    assert_eq!(taken.len(), most);
    let mut clients = Vec::new();
    for tenant in 10..10 + limits::STDIO_SHARED.default {
        clients.push(places.wait_for(shared(u128::from(tenant))).await.unwrap());
    }
}

#[tokio::test]
async fn tenants_over_their_share_give_way() {
    let places = Places::new();
    let one = idle(&places, own(1, 1), PERSON).await;
    let two = idle(&places, own(1, 2), PERSON).await;
    let more = idle(&places, own(2, 3), PERSON).await;
    let last = idle(&places, own(2, 4), PERSON).await;
    let all = limits::STDIO_CHILDREN.size() - limits::STDIO_SHARED.size();
    assert_eq!(all, 4 * PERSON);
    assert_eq!(get(&places, own(3, 5), 4).await, 4);
    assert_eq!(gone(&one), 4, "the longest idle of all who have too many");
    assert_eq!(gone(&two) + gone(&more) + gone(&last), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_less_waits_for_what_is_at_work_to_end() {
    let places = Places::new();
    let mut one = busy(&places, own(1, 1), PERSON).await;
    let two = busy(&places, own(1, 2), PERSON).await;
    let third = {
        let places = places.clone();
        tokio::spawn(async move { places.wait_for(own(1, 3)).await })
    };
    tokio::task::yield_now().await;
    let (place, work) = one.remove(0);
    assert!(place.uses().begin().is_none(), "it was asked to go");
    assert!(!place.end.is_cancelled() && !third.is_finished());
    drop(work);
    let (_place, _work) = third.await.unwrap().unwrap();
    assert!(place.end.is_cancelled());
    assert!(two.iter().chain(&one).all(|(place, _)| !place.end.is_cancelled()));
    let none = places.take(own(1, 4)).await.unwrap_err();
    assert_eq!(none.code, Code::RateLimitQueueFull, "nothing ends in time");
    let free = |(place, _): &(Place, Work)| !place.uses().must_go();
    assert!(two.iter().chain(&one).all(free), "whoever was asked to go for somebody may stay now");
}

#[tokio::test]
async fn a_tenants_shared_clients_leave_room_for_another_tenant_however_busy_they_are() {
    let places = Places::new();
    let most = limits::STDIO_TENANT.size();
    let taken = busy(&places, shared(1), most).await;
    assert_eq!(places.take(shared(1)).await.unwrap_err().code, Code::UpstreamUnavailable);
    let left = limits::STDIO_CHILDREN.size() - most;
    assert_eq!(get(&places, shared(2), left).await, left);
    assert_eq!(get(&places, own(2, 1), 1).await, 1);
    drop(taken);
}

#[tokio::test]
async fn a_process_is_counted_until_it_is_gone() {
    let places = Places::new();
    let mut taken = idle(&places, shared(1), limits::STDIO_TENANT.size()).await;
    taken.extend(idle(&places, shared(2), limits::STDIO_CHILDREN.size() - taken.len()).await);
    let next = {
        let places = places.clone();
        tokio::spawn(async move { places.take(shared(3)).await })
    };
    while gone(&taken) == 0 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    assert!(!next.is_finished());
    taken.retain(|place| !place.end.is_cancelled());
    next.await.unwrap().unwrap();
}
