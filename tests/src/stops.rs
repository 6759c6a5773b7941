//! Holds one request at the moment that a test is about.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::world::eventually;

/// Where a request is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It is there, and nothing was done.
    Received,
    /// It is done, and nothing of the answer left.
    Done,
}

/// At most one request is held, once; when its sender is gone, so is it.
#[derive(Debug)]
pub(crate) struct Stops {
    next: Mutex<Option<(&'static str, Moment)>>,
    held: watch::Sender<bool>,
}

impl Default for Stops {
    fn default() -> Self {
        Self { next: Mutex::default(), held: watch::Sender::new(false) }
    }
}

impl Stops {
    /// The next request of this name is held there.
    pub(crate) fn set(&self, name: &'static str, moment: Moment) {
        self.held.send_replace(false);
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, moment));
    }

    /// A request comes by.
    pub(crate) async fn pass(&self, name: &str, moment: Moment) {
        let wanted = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            next.take_if(|(stop, at)| *stop == name && *at == moment).is_some()
        };
        if wanted {
            let mut held = self.held.subscribe();
            self.held.send_replace(true);
            let _let_go = held.wait_for(|held| !held).await;
        }
    }

    /// Waits until it is there.
    pub(crate) async fn reached(&self) {
        eventually("the request is held", async || self.held.borrow().then_some(())).await;
    }

    /// Lets it go on.
    pub(crate) fn go(&self) {
        self.held.send_replace(false);
    }
}
