use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{self, Instant},
};

use crate::{Admission, Entry, Group, Queue, QueueTimeout, Shared, Slot, Ticket};

const MS: Duration = Duration::from_millis(1);

fn group(max_concurrent: u32, max_queue_depth: u32) -> Group {
    Group {
        key: "acme/echo".to_owned(),
        max_concurrent,
        max_queue_depth,
        queue_timeout: 20_000 * MS,
        min_interval: Duration::ZERO,
    }
}

fn admitted(entry: Entry) -> Slot {
    match entry {
        Entry::Admitted(slot) => slot,
        other => panic!("expected a slot, got {other:?}"),
    }
}

fn queued(entry: Entry) -> Ticket {
    match entry {
        Entry::Queued(ticket) => ticket,
        other => panic!("expected a place in the queue, got {other:?}"),
    }
}

fn refused(entry: &Entry) -> bool {
    matches!(entry, Entry::Refused)
}

fn remembered(admission: &Admission) -> usize {
    let Shared::Local(groups) = &admission.0;
    groups.remembered()
}

async fn wait(ticket: Ticket) -> JoinHandle<Result<Slot, QueueTimeout>> {
    let task = tokio::spawn(ticket.admitted());
    tokio::task::yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn of_twenty_parallel_calls_nine_run_and_eleven_are_refused() {
    let admission = Admission::local();
    let group = group(1, 8);
    let first = admitted(admission.enter(&group, Queue::Bounded));
    let mut tasks = JoinSet::new();
    let mut refusals = 0;
    for _ in 0..19 {
        match admission.enter(&group, Queue::Bounded) {
            Entry::Admitted(_) => panic!("two run at once"),
            Entry::Queued(ticket) => {
                drop(tasks.spawn(async move { ticket.admitted().await.is_ok() }));
            }
            Entry::Refused => refusals += 1,
        }
    }
    assert_eq!((refusals, admission.waiting(&group.key)), (11, 8));

    drop(first);
    let ran = tasks.join_all().await;
    assert_eq!(ran, [true; 8]);
    assert_eq!(remembered(&admission), 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_start_in_the_order_of_their_arrival_whatever_their_kind() {
    let admission = Admission::local();
    let group = group(1, 2);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let kinds = [Queue::Bounded, Queue::Unbounded, Queue::Bounded, Queue::Unbounded];
    let tickets: Vec<Ticket> =
        kinds.map(|kind| queued(admission.enter(&group, kind))).into_iter().collect();
    assert!(refused(&admission.enter(&group, Queue::Bounded)));

    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    // Polled in reverse: the order of arrival counts, not who looks first.
    for (number, ticket) in tickets.into_iter().enumerate().rev() {
        let order = Arc::clone(&order);
        tasks.spawn(async move {
            let _slot = ticket.admitted().await.unwrap();
            order.lock().unwrap().push(number);
            time::sleep(10 * MS).await;
        });
    }
    drop(running);
    tasks.join_all().await;
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn nobody_overtakes_a_waiter_that_has_not_looked_yet() {
    let admission = Admission::local();
    let group = group(1, 8);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let early = queued(admission.enter(&group, Queue::Bounded));
    drop(running);
    let late = queued(admission.enter(&group, Queue::Bounded));
    let slot = early.admitted().await.unwrap();
    drop(slot);
    assert!(late.admitted().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_too_long_is_taken_out() {
    let admission = Admission::local();
    let group = group(1, 8);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let bounded = wait(queued(admission.enter(&group, Queue::Bounded))).await;
    let released = wait(queued(admission.enter(&group, Queue::Unbounded))).await;

    let timeout = bounded.await.unwrap().unwrap_err();
    assert_eq!(timeout.queue_wait.as_secs(), 20);
    assert_eq!(admission.waiting(&group.key), 1);

    time::sleep(3_600_000 * MS).await;
    drop(running);
    let slot = released.await.unwrap().unwrap();
    assert_eq!(slot.queue_wait().as_secs(), 3_620);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_comes_too_late_goes_to_the_next() {
    let admission = Admission::local();
    let group = group(1, 8);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    // Not polled before its time is over.
    let expired = queued(admission.enter(&group, Queue::Bounded));
    let next = queued(admission.enter(&group, Queue::Unbounded));
    time::sleep(20_001 * MS).await;
    drop(running);
    assert!(expired.admitted().await.is_err());
    assert!(next.admitted().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_at_the_head_does_not_stall_the_rest() {
    let admission = Admission::local();
    let group = group(1, 2);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let head = wait(queued(admission.enter(&group, Queue::Bounded))).await;
    let second = queued(admission.enter(&group, Queue::Bounded));
    assert!(refused(&admission.enter(&group, Queue::Bounded)));

    head.abort();
    assert!(head.await.unwrap_err().is_cancelled());
    assert_eq!(admission.waiting(&group.key), 1);
    let third = queued(admission.enter(&group, Queue::Bounded));

    drop(running);
    drop(second.admitted().await.unwrap());
    assert!(third.admitted().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_ticket_dropped_after_its_grant_gives_the_slot_on() {
    let admission = Admission::local();
    let group = group(1, 8);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let granted = queued(admission.enter(&group, Queue::Bounded));
    let next = queued(admission.enter(&group, Queue::Bounded));
    drop(running);
    drop(granted);
    drop(next.admitted().await.unwrap());
    assert_eq!((admission.running(&group.key), remembered(&admission)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_expired_ticket_leaves_a_later_group_of_the_same_key_alone() {
    let admission = Admission::local();
    let group = group(1, 8);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let expired = queued(admission.enter(&group, Queue::Bounded));
    time::sleep(20_001 * MS).await;
    drop(running);
    assert_eq!(remembered(&admission), 0);
    let running = admitted(admission.enter(&group, Queue::Bounded));
    let waiting = queued(admission.enter(&group, Queue::Bounded));
    drop(expired);
    assert_eq!(admission.waiting(&group.key), 1);
    drop(running);
    assert!(waiting.admitted().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn starts_keep_their_interval_also_after_an_idle_moment() {
    let admission = Admission::local();
    let paced = Group { min_interval: 100 * MS, ..group(8, 8) };
    let begin = Instant::now();
    drop(admitted(admission.enter(&paced, Queue::Bounded)));

    let tickets = [(); 3].map(|()| queued(admission.enter(&paced, Queue::Bounded)));
    let mut starts = Vec::new();
    for ticket in tickets {
        let slot = ticket.admitted().await.unwrap();
        starts.push(begin.elapsed().as_millis());
        assert_eq!(slot.queue_wait().as_millis(), begin.elapsed().as_millis());
    }
    assert_eq!(starts, [100, 200, 300]);

    assert_eq!(remembered(&admission), 1);
    time::sleep(101 * MS).await;
    assert_eq!(remembered(&admission), 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_queue_a_call_that_cannot_start_at_once_is_refused() {
    let admission = Admission::local();
    let group = Group { min_interval: 100 * MS, ..group(1, 0) };
    let running = admitted(admission.enter(&group, Queue::Bounded));
    assert!(refused(&admission.enter(&group, Queue::Bounded)));
    drop(running);
    assert!(refused(&admission.enter(&group, Queue::Bounded)), "paced");
    let released = queued(admission.enter(&group, Queue::Unbounded));
    assert!(released.admitted().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_pauses_the_whole_group_and_a_shorter_one_does_not_end_it() {
    let admission = Admission::local();
    let group = group(4, 8);
    let begin = Instant::now();
    let running = admitted(admission.enter(&group, Queue::Bounded));
    admission.cool_down(&group.key, 1_000 * MS);
    let waiting = queued(admission.enter(&group, Queue::Bounded));
    admission.cool_down(&group.key, 200 * MS);
    admission.cool_down(&group.key, 3_000 * MS);
    let slot = waiting.admitted().await.unwrap();
    assert_eq!(begin.elapsed().as_millis(), 3_000);
    drop((running, slot));

    // One that no call has used yet; and one that no clock can hold.
    admission.cool_down("acme/other", 500 * MS);
    let other = Group { key: "acme/other".to_owned(), ..group.clone() };
    assert!(queued(admission.enter(&other, Queue::Bounded)).admitted().await.is_ok());
    admission.cool_down("acme/far", Duration::MAX);
    time::sleep(25 * 3_600_000 * MS).await;
    assert_eq!(remembered(&admission), 0);
}

#[tokio::test(start_paused = true)]
async fn the_newest_numbers_hold_for_those_who_wait_already() {
    let admission = Admission::local();
    let narrow = group(1, 8);
    let first = admitted(admission.enter(&narrow, Queue::Bounded));
    let waiting = queued(admission.enter(&narrow, Queue::Bounded));

    let wide = group(3, 8);
    let third = admitted(admission.enter(&wide, Queue::Bounded));
    let second = waiting.admitted().await.unwrap();
    assert_eq!(admission.running(&wide.key), 3);

    let late = queued(admission.enter(&narrow, Queue::Bounded));
    drop((first, second));
    assert_eq!(admission.waiting(&narrow.key), 1, "one still runs, and one may");
    drop(third);
    assert!(late.admitted().await.is_ok());

    // A shorter interval frees whoever waits for a longer one.
    let slow = Group { min_interval: 60_000 * MS, ..group(2, 8) };
    let begin = Instant::now();
    let first =
        admitted(admission.enter(&Group { key: "x".to_owned(), ..slow.clone() }, Queue::Bounded));
    let paced = queued(admission.enter(&Group { key: "x".to_owned(), ..slow }, Queue::Bounded));
    let quick = Group { key: "x".to_owned(), min_interval: 50 * MS, ..group(2, 8) };
    let next = queued(admission.enter(&quick, Queue::Bounded));
    let paced = paced.admitted().await.unwrap();
    assert_eq!(begin.elapsed().as_millis(), 50);
    drop((first, paced));
    assert!(next.admitted().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_used_once_leave_nothing() {
    let admission = Admission::local();
    for number in 0..10_000 {
        let key = format!("acme/{number}");
        let group = Group { key, min_interval: (number % 3) * 10 * MS, ..group(1, 8) };
        drop(admitted(admission.enter(&group, Queue::Bounded)));
    }
    time::sleep(21 * MS).await;
    assert_eq!(remembered(&admission), 0);
}

/// What one caller of the stress does.
#[derive(Debug, Clone)]
struct Caller {
    arrives_after: u64,
    runs_for: u64,
    gives_up_after: Option<u64>,
    bounded: bool,
}

fn callers() -> impl Strategy<Value = Vec<Caller>> {
    let caller = (0_u64..30, 0_u64..20, proptest::option::of(0_u64..60), any::<bool>()).prop_map(
        |(arrives_after, runs_for, gives_up_after, bounded)| Caller {
            arrives_after,
            runs_for,
            gives_up_after,
            bounded,
        },
    );
    proptest::collection::vec(caller, 1..60)
}

#[derive(Debug, Default)]
struct Seen {
    running: AtomicU32,
    most: AtomicU32,
    /// In the order of entering, who had to queue; and when whom a slot was granted. (Not in which
    /// order their tasks came to notice: a grant and a lost patience may fall on one moment.)
    queued: Mutex<Vec<usize>>,
    granted: Mutex<HashMap<usize, Instant>>,
}

async fn call(admission: Admission, group: Group, number: usize, caller: Caller, seen: Arc<Seen>) {
    time::sleep(Duration::from_millis(caller.arrives_after)).await;
    let kind = if caller.bounded { Queue::Bounded } else { Queue::Unbounded };
    let slot = match admission.enter(&group, kind) {
        Entry::Admitted(slot) => slot,
        Entry::Refused => return,
        Entry::Queued(ticket) => {
            seen.queued.lock().unwrap().push(number);
            let since = Instant::now();
            let patience = Duration::from_millis(caller.gives_up_after.unwrap_or(1_000_000));
            let Ok(Ok(slot)) = time::timeout(patience, ticket.admitted()).await else { return };
            seen.granted.lock().unwrap().insert(number, since + slot.queue_wait());
            slot
        }
    };
    let running = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
    seen.most.fetch_max(running, Ordering::SeqCst);
    time::sleep(Duration::from_millis(caller.runs_for)).await;
    seen.running.fetch_sub(1, Ordering::SeqCst);
    drop(slot);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..Default::default() })]

    #[test]
    fn never_more_than_allowed_first_come_first_and_nobody_forgotten(
        callers in callers(), max in 1_u32..4, depth in 0_u32..12, interval in 0_u64..8, cool in 0_u64..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let admission = Admission::local();
            let group = Group {
                queue_timeout: 40 * MS,
                min_interval: Duration::from_millis(interval),
                ..group(max, depth)
            };
            let seen = Arc::new(Seen::default());
            let mut tasks = JoinSet::new();
            for (number, caller) in callers.into_iter().enumerate() {
                tasks.spawn(call(admission.clone(), group.clone(), number, caller, Arc::clone(&seen)));
            }
            time::sleep(15 * MS).await;
            admission.cool_down(&group.key, Duration::from_millis(cool));
            // A lost wake-up would leave an unbounded waiter here for ever.
            time::timeout(Duration::from_mins(15), tasks.join_all()).await.unwrap();

            prop_assert!(seen.most.load(Ordering::SeqCst) <= max);
            let granted = seen.granted.lock().unwrap().clone();
            let queued = seen.queued.lock().unwrap().clone();
            let grants: Vec<Instant> =
                queued.iter().filter_map(|number| granted.get(number).copied()).collect();
            prop_assert!(grants.is_sorted(), "{queued:?}: {granted:?}");
            time::sleep(50 * MS).await;
            prop_assert_eq!(remembered(&admission), 0);
            Ok(())
        })?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_never_run_more_than_allowed_and_all_get_their_turn() {
    let admission = Admission::local();
    let group = group(3, 10_000);
    let seen = Arc::new(Seen::default());
    let mut tasks = JoinSet::new();
    for number in 0..3_000 {
        let (admission, group, seen) = (admission.clone(), group.clone(), Arc::clone(&seen));
        tasks.spawn(async move {
            let slot = match admission.enter(&group, Queue::Bounded) {
                Entry::Admitted(slot) => slot,
                // Some give up at once, in the middle of a hand-over.
                Entry::Queued(ticket) if number % 5 == 0 => {
                    tokio::task::yield_now().await;
                    return drop(ticket);
                }
                Entry::Queued(ticket) => ticket.admitted().await.unwrap(),
                Entry::Refused => panic!("the queue is deep enough"),
            };
            let running = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most.fetch_max(running, Ordering::SeqCst);
            tokio::task::yield_now().await;
            seen.running.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
        });
    }
    time::timeout(Duration::from_mins(1), tasks.join_all()).await.unwrap();
    assert!(seen.most.load(Ordering::SeqCst) <= 3);
    assert_eq!(remembered(&admission), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_taken_again_may_be_one_too_many_and_the_next_waits_for_both() {
    let admission = Admission::local();
    let group = Group { min_interval: 1_000 * MS, ..group(1, 8) };
    // Its caller is asked something meanwhile.
    drop(admitted(admission.enter(&group, Queue::Bounded)));
    time::advance(1_000 * MS).await;
    let second = admitted(admission.enter(&group, Queue::Bounded));
    let first = admission.retake(&group);
    assert_eq!(admission.running(&group.key), 2);

    let third = wait(queued(admission.enter(&group, Queue::Bounded))).await;
    time::advance(1_000 * MS).await;
    drop(first);
    tokio::task::yield_now().await;
    assert!(!third.is_finished());
    drop(second);
    assert!(third.await.unwrap().is_ok(), "pacing counts from the start of the second");
    time::advance(1_000 * MS).await;
    assert_eq!(admission.running(&group.key), 0);
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_forgotten_meanwhile_takes_its_call_again() {
    let admission = Admission::local();
    let group = group(2, 8);
    drop(admitted(admission.enter(&group, Queue::Bounded)));
    assert_eq!(remembered(&admission), 0);
    let slot = admission.retake(&group);
    assert_eq!(admission.running(&group.key), 1);
    let _other = admitted(admission.enter(&group, Queue::Bounded));
    drop(slot);
    assert_eq!(admission.running(&group.key), 1);
}
