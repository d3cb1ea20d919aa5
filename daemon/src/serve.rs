//! From a home to a daemon that serves, and back.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::{Listener, ListenerExt};
use kwoon_keys::Digest;
use kwoon_ledger::storage::{Store, WriteError};
use kwoon_store::{CACHE_BYTES_DEFAULT, DiskStore, Home, OpenError, OpenMode};
use kwoon_sync::operations::peer::is_online;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use crate::config::{self, ChoiceError, Choices, ConfigError, Options};
use crate::http;
use crate::peers::{self, Opened, Peers};
use crate::service::{Service, connection};
use crate::writer::StartError;

/// Connections of each way in that are served at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
/// Connections that may wait to be accepted. The system's own choice is small: clients beyond it try again after seconds.
const BACKLOG: u32 = 1024;
/// Open files that are kept for the store, its content and the daemon itself, whatever connections there are.
const FILES_RESERVED: u64 = 192;
/// Threads for what may block and is no read: is it ready, is it stopped.
const BLOCKING_BESIDE_READS: usize = 8;
/// How long requests under way may take when the daemon stops.
const STOP_TIME: Duration = Duration::from_secs(10);
/// Longer paths do not fit the address of a Unix socket everywhere.
const SOCKET_PATH_MAX: usize = 100;

/// Why a daemon cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The home or its store.
    #[error(transparent)]
    Home(#[from] OpenError),
    /// The configuration or an option.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The choices.
    #[error(transparent)]
    Choices(#[from] ChoiceError),
    /// Keys, tokens or the store.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The derived table cannot be made anew.
    #[error(transparent)]
    Rebuild(#[from] kwoon_store::RebuildError),
    /// The store cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The address that was asked for.
    #[error("cannot listen on {address}: {source}; give another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The net, where other hosts are met.
    #[error(transparent)]
    Net(#[from] kwoon_net::NetError),
    /// A file of the home.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads or signals.
    #[error("the daemon cannot start: {0}")]
    System(#[from] io::Error),
}

/// Serves a home until SIGTERM or SIGINT, in the foreground. Makes the home where there is none.
///
/// # Errors
/// If it cannot begin; each error says what is wrong and what to do. Nothing is changed then.
pub fn serve(options: Options) -> Result<(), ServeError> {
    start_logging();
    let home = Arc::new(Home::open(&options.home, OpenMode::MakeIfMissing)?);
    let limits = config::limits(home.path())?;
    let store = Arc::new(DiskStore::open(&home, CACHE_BYTES_DEFAULT)?);
    if options.rebuild {
        let report = kwoon_store::rebuild(&*store)?;
        tracing::info!(facts = report.facts, "the derived table was made anew");
    }
    // Reads, and what else may block: a crowd of requests gets no more threads than may read at once.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime
        .max_blocking_threads(http::READS_MAX + peers::WORKING_MAX + BLOCKING_BESIDE_READS)
        .enable_all()
        .build()?;
    let served = runtime.block_on(run(&options, &home, &store, limits));
    runtime.shutdown_timeout(STOP_TIME);
    if let Ok(store) = Arc::try_unwrap(store)
        && let Err(error) = store.close()
    {
        tracing::warn!(%error, "the store was not closed cleanly");
    }
    served
}

/// What is logged. A bare level is that of this program: the libraries of the network say much at every level, and nothing
/// that its owner could act on.
fn log_filter(asked: Option<&str>) -> String {
    match asked.filter(|asked| !asked.is_empty()) {
        None => "error,kwoon=info".to_owned(),
        Some(level) if level.bytes().all(|byte| byte.is_ascii_alphabetic()) => format!("error,kwoon={level}"),
        Some(directives) => directives.to_owned(),
    }
}

fn start_logging() {
    let asked = std::env::var("KWOON_LOG").ok();
    let filter = tracing_subscriber::EnvFilter::try_new(log_filter(asked.as_deref()))
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(log_filter(None)));
    // A test may have set one already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // A log that cannot be written, for a full disk say, must not end the daemon.
        .log_internal_errors(false)
        .try_init();
    // What a panic says may hold what a participant wrote, so only its place is logged.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "a defect in this program");
    }));
}

async fn run(
    options: &Options,
    home: &Arc<Home>,
    store: &Arc<DiskStore>,
    limits: kwoon_ledger::limits::Limits,
) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let snapshot = store.snapshot().map_err(StartError::Read)?;
    let mut choices = Choices::of(options, &snapshot)?;
    let online = is_online(&snapshot).map_err(StartError::Read)?;
    drop(snapshot);
    let tcp = listen(&mut choices)?;
    let address = tcp.local_addr()?;
    let mut service = Service::new(home, store, limits, address)?;
    let opened = Opened::open(service.key(), &mut choices, online).await?;
    store.commit(choices.batch())?;
    let (unix, socket) = listen_unix(home.path())?;
    let host = service.host();
    service.write()?;
    let peers = Peers::start(opened, Arc::clone(store), service.writer(), service.around()).await;

    // Each way in has its own, so that the command line gets through whatever goes on over TCP.
    let most = connections_max(files_max());
    let connections = [Arc::new(Semaphore::new(most)), Arc::new(Semaphore::new(most))];
    let tcp = tcp.tap_io(|stream| {
        // Answers are small and wait for nothing; an address without this option serves as well.
        let _ = stream.set_nodelay(true);
    });
    let accepting = [
        tokio::spawn(accept(tcp, service.router(true), Arc::clone(&connections[0]), service.stopping())),
        tokio::spawn(accept(unix, service.router(false), Arc::clone(&connections[1]), service.stopping())),
    ];
    let run_file = home.path().join("run.json");
    let info = json!({
        "pid": std::process::id(),
        "http": format!("http://{address}"),
        "host": host.to_string(),
        "bind": choices.bind.to_string(),
        "socket": socket,
    });
    kwoon_keys::files::write_private(&kwoon_keys::files::Os, &run_file, format!("{info}\n").as_bytes())
        .map_err(OpenError::from)?;
    tracing::info!(%address, %host, "serving");

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    service.announce_stop();
    for task in accepting {
        let _ = task.await;
    }
    // Every connection holds a permit; when all are back, all are done.
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let done = async {
        for connections in &connections {
            let _ = connections.acquire_many(all).await;
        }
    };
    // Meanwhile the other hosts are told.
    let (done, told) =
        tokio::join!(tokio::time::timeout(STOP_TIME, done), tokio::time::timeout(STOP_TIME, peers.stop()));
    if told.is_err() {
        tracing::warn!("the conversations with other hosts did not end in time");
    }
    if done.is_err() {
        tracing::warn!("some requests did not end in time");
    }
    let _ = std::fs::remove_file(&socket);
    let _ = std::fs::remove_file(&run_file);
    tokio::task::spawn_blocking(move || service.stop())
        .await
        .map_err(|error| ServeError::System(io::Error::other(error.to_string())))?;
    Ok(())
}

/// How many files this process may open: as many as the system lets it have, once it asks.
fn files_max() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised } else { limit };
    limit.current.unwrap_or(u64::MAX)
}

/// Connections of each way in, where this many files may be open: a connection is one, and if they took all, the store
/// could not write the next text, which ends all sealing.
fn connections_max(files: u64) -> usize {
    let each = usize::try_from(files.saturating_sub(FILES_RESERVED) / 2).unwrap_or(usize::MAX);
    each.clamp(1, CONNECTIONS_MAX)
}

/// Listens at the chosen address. A port that was picked is used again; another is picked only if it is taken. A port
/// that was asked for and is taken is an error.
fn listen(choices: &mut Choices) -> Result<TcpListener, ServeError> {
    let listener = match bind(choices.listen) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !choices.listen_asked => {
            let any = SocketAddr::new(choices.listen.ip(), 0);
            bind(any).map_err(|source| ServeError::Listen { address: any, source })?
        }
        Err(source) => return Err(ServeError::Listen { address: choices.listen, source }),
    };
    choices.listen = listener.local_addr()?;
    Ok(listener)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // The port of the daemon before is still in the system's memory.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The Unix socket: in the home, or under a shorter path if that would be too long.
fn listen_unix(home: &Path) -> Result<(UnixListener, PathBuf), ServeError> {
    let path = socket_path(home)?;
    let file_error = |source| ServeError::File { path: path.clone(), source };
    // The lock on the home is held, so a socket here is one that a daemon left behind.
    match std::fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.file_type().is_socket() => std::fs::remove_file(&path).map_err(file_error)?,
        Ok(_) => return Err(file_error(io::Error::other("is in the way of the socket; move it elsewhere"))),
        Err(_) => {}
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(&path).map_err(file_error)?;
    // Before anybody can connect.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(file_error)?;
    let listener = socket.listen(BACKLOG).map_err(file_error)?;
    Ok((listener, path))
}

fn socket_path(home: &Path) -> Result<PathBuf, ServeError> {
    let home = home.canonicalize()?;
    let in_home = home.join("kwoon.sock");
    if in_home.as_os_str().len() <= SOCKET_PATH_MAX {
        return Ok(in_home);
    }
    let name = Digest::of("kwoon 1 socket", &[home.as_os_str().as_encoded_bytes()]).to_string();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => {
            let directory = std::env::temp_dir().join(format!("kwoon-{}", &name[..8]));
            let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
            if let Err(error) = made
                && error.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(ServeError::File { path: directory, source: error });
            }
            directory
        }
    };
    // Whoever may replace the socket gets the tokens: the directory is this user's alone, and no link to another.
    let metadata =
        std::fs::symlink_metadata(&directory).map_err(|source| ServeError::File { path: directory.clone(), source })?;
    let owner = std::fs::metadata(&home)?.uid();
    if !metadata.is_dir() || metadata.uid() != owner || metadata.mode() & 0o077 != 0 {
        let source = io::Error::other("must be a directory of yours with mode 0700 for the socket to lie in");
        return Err(ServeError::File { path: directory, source });
    }
    Ok(directory.join(format!("kwoon-{}.sock", &name[..16])))
}

/// Accepts connections until the daemon stops, as many at once as there are permits.
async fn accept<L: Listener>(
    mut listener: L,
    router: Router,
    connections: Arc<Semaphore>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        tokio::select! {
            (stream, _) = listener.accept() => {
                let served = connection(stream, router.clone(), stopping.clone());
                tokio::spawn(async move {
                    served.await;
                    drop(permit);
                });
            }
            _ = stopping.changed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_level_is_that_of_this_program() {
        assert_eq!(log_filter(None), "error,kwoon=info");
        assert_eq!(log_filter(Some("")), "error,kwoon=info");
        assert_eq!(log_filter(Some("debug")), "error,kwoon=debug");
        assert_eq!(log_filter(Some("info,iroh=debug")), "info,iroh=debug");
    }

    #[test]
    fn connections_leave_files_for_the_store() {
        assert_eq!(connections_max(u64::MAX), 1024);
        assert_eq!(connections_max(2 * 1024 + FILES_RESERVED), 1024);
        assert_eq!(connections_max(1024), 416);
        assert_eq!(connections_max(64), 1);
        assert!(files_max() > FILES_RESERVED);
    }
}
