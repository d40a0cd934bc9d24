//! A wish to end a run before its time, from elsewhere: another thread, a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frazil_train::comm::Comm;

use crate::{Error, Result};

/// The same wish in every copy. A run that hears of it finishes its step, writes a checkpoint and ends.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    asked: AtomicBool,
    heard: AtomicBool,
}

impl Stop {
    /// Asks; whether a run is under way that will hear of it.
    pub fn ask(&self) -> bool {
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.heard.load(Ordering::SeqCst)
    }

    /// Whether anybody has asked.
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Ends work that nobody waits for any more. Of several ranks none ends alone.
    pub(crate) fn check(&self, comm: &dyn Comm) -> Result<()> {
        if self.is_asked() && comm.size() == 1 { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Listens, as long as what is returned lives.
    pub(super) fn listen(&self) -> Listens {
        self.0.heard.store(true, Ordering::SeqCst);
        Listens(self.clone())
    }
}

pub(super) struct Listens(Stop);

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.0.heard.store(false, Ordering::SeqCst);
    }
}
