//! Stopping: gently at the first signal, at once at the second.
//!
//! The first SIGINT or SIGTERM cancels the token that every stage holds a child of: a stage finishes its transaction, the
//! outlets flush, the checkpoint is saved, the source is let go. A second signal, or the end of the grace time, gives all that
//! up. That is safe, as a crash is: what was not saved is delivered again. It only costs the repetition.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::signal::unix::{self, SignalKind};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::exit::Code;
use crate::telemetry::field;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
}

impl Signal {
    pub fn code(self) -> Code {
        match self {
            Self::Interrupt => Code::Interrupted,
            Self::Terminate => Code::Terminated,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }
}

/// Shared by everything that has to stop. Clones are handles of the same.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    token: CancellationToken,
    first: Arc<OnceLock<Signal>>,
}

impl Shutdown {
    /// Cancelled when the process should end gently; stages take children of it.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The signal that began it.
    pub fn signal(&self) -> Option<Signal> {
        self.first.get().copied()
    }
}

/// The process's signals. From its making on, they no longer kill the process.
#[derive(Debug)]
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// # Errors
    /// The system refuses the handlers.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }

    /// Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// Begins the shutdown at the first signal, and returns when the process must not wait any longer. Cancel-safe.
pub async fn watch(
    mut next: impl AsyncFnMut() -> Signal,
    shutdown: &Shutdown,
    grace: Duration,
) -> Signal {
    let first = next().await;
    let first = *shutdown.first.get_or_init(|| first);
    info!(
        { field::SIGNAL } = first.name(),
        { field::GRACE_S } = grace.as_secs(),
        "stopping; another signal stops at once"
    );
    shutdown.token.cancel();
    match tokio::time::timeout(grace, next()).await {
        Ok(second) => {
            warn!({ field::SIGNAL } = second.name(), "stopped at once by a second signal")
        }
        Err(_) => {
            warn!({ field::GRACE_S } = grace.as_secs(), "stopped at the end of the grace time")
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    const GRACE: Duration = Duration::from_secs(30);

    async fn watched(signals: &[Signal]) -> (Shutdown, Signal, Duration) {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        signals.iter().for_each(|signal| sender.send(*signal).expect("the receiver lives"));
        let shutdown = Shutdown::default();
        let began = tokio::time::Instant::now();
        let next = async || receiver.recv().await.expect("the sender lives");
        let signal = watch(next, &shutdown, GRACE).await;
        (shutdown, signal, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_grace_time() {
        let (shutdown, signal, time) = watched(&[Signal::Terminate, Signal::Interrupt]).await;
        assert!(shutdown.token().is_cancelled());
        assert_eq!((signal, time), (Signal::Terminate, Duration::ZERO));
        assert_eq!(shutdown.signal().map(Signal::code), Some(Code::Terminated));
    }

    #[tokio::test(start_paused = true)]
    async fn one_signal_leaves_the_grace_time() {
        let (shutdown, signal, time) = watched(&[Signal::Interrupt]).await;
        assert!(shutdown.token().is_cancelled());
        assert_eq!(signal, Signal::Interrupt);
        assert!(time >= GRACE && time < GRACE + Duration::from_secs(1), "{time:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_signal_nothing_is_stopped() {
        let shutdown = Shutdown::default();
        let never = async || std::future::pending().await;
        let watching = watch(never, &shutdown, GRACE);
        assert!(tokio::time::timeout(GRACE * 100, watching).await.is_err());
        assert!(!shutdown.token().is_cancelled());
        assert_eq!(shutdown.signal(), None);
    }
}
