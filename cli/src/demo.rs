//! `kwoon demo`: two hosts in temporary homes play the story of one that goes off the network and comes back.
//!
//! They are two daemons, started as `kwoon up` starts them, that meet over the loopback interface alone. Whatever becomes
//! of the story, also when it is interrupted, both are ended and their homes removed.

mod host;
mod owed;
mod story;

use std::env;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::Globals;
use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::visible;

/// Longer paths are not taken for the homes to be made in.
const PLACE_BYTES_MAX: usize = 64;

/// What ends the story early.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Interrupts {
    /// From here on they end this process no more by themselves.
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// Where the homes are made. Sockets lie in them, and a long path does not fit the address of one.
fn temporary() -> PathBuf {
    let usual = env::temp_dir();
    if usual.as_os_str().len() > PLACE_BYTES_MAX { "/tmp".into() } else { usual }
}

/// Plays the story.
///
/// # Errors
/// If it did not come out, was interrupted, or something of it is left.
pub fn demo(globals: &Globals) -> Result<Exit, Failure> {
    if *globals != Globals::default() {
        return Err(Failure::Usage("kwoon demo takes no options: it makes homes and agents of its own".to_owned()));
    }
    let system = |error: io::Error| Failure::Failed(format!("the demo cannot begin: {error}"));
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(system)?;
    let began = Instant::now();
    let _entered = runtime.enter();
    let mut interrupts = Interrupts::listen().map_err(system)?;
    let place = temporary();
    let directory = tempfile::Builder::new().prefix("kwoon-demo-").tempdir_in(&place);
    let directory = directory.map_err(|error| Failure::io(&place, error))?;
    let told = runtime.block_on(async {
        tokio::select! {
            biased;
            () = interrupts.any() => Err(Failure::Failed("interrupted".to_owned())),
            told = story::tell(directory.path()) => told,
        }
    });
    // Hosts that are not given back were ended as the story was dropped.
    let stopped = told.and_then(|hosts| hosts.into_iter().try_for_each(|host| host.stop()));
    let path = directory.path().to_owned();
    let removed = directory.close().map_err(|error| Failure::io(&path, error));
    match (stopped, removed) {
        (Ok(()), Ok(())) => {}
        (Ok(()), Err(left)) => return Err(left),
        (Err(failure), Ok(())) => {
            return Err(Failure::Failed(format!("{failure}\nBoth hosts were ended and their homes removed.")));
        }
        (Err(failure), Err(left)) => return Err(Failure::Failed(format!("{failure}\nIts homes stay: {left}"))),
    }
    let text = format!(
        "\nBoth hosts are stopped and their homes removed; that took {} s. For hosts of your own: kwoon up\n",
        began.elapsed().as_secs().max(1)
    );
    terminal::print(&visible::text(&text));
    Ok(Exit::Done)
}
