//! The API and the page of campaigns: HTTP over a folder of campaigns.
//!
//! The server is a process beside coordinators. It reads a campaign's queue and its stored objects as other commands do, and
//! starts `slipway campaign run` as a process of its own (ADR 0043). Results of any size are files that it reads from storage;
//! workers never call it.

mod answers;
mod app;
mod body;
mod convert;
mod error;
mod extract;
mod guard;
mod listen;
mod openstudio;
mod page;
mod routes;
mod sessions;
mod shelf;
mod tls;
mod tokens;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use tokio_rustls::TlsAcceptor;

use app::{App, Shared};
use sessions::Sessions;
use shelf::Shelf;

pub use convert::{Convert, Converted, Files};
pub use shelf::try_archive;
pub use tls::TlsError;
pub use tokens::{Key, Role, TokenError, Tokens};

/// Longest JSON body in bytes: a campaign file is 4 MiB at most.
const BODY: usize = 8 << 20;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder of campaigns.
    pub folder: PathBuf,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Files with the certificate's chain and its private key, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// Names that the server is called by, besides addresses and `localhost`.
    pub names: Vec<String>,
    /// The program that runs campaigns: slipway itself.
    pub program: PathBuf,
    /// Makes campaigns of analyses of `OpenStudio`; without it, its clients can read and not start.
    pub converter: Option<Arc<dyn Convert>>,
}

/// The reason why the server does not serve. Each fits "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The folder of campaigns.
    #[error("open the folder of campaigns {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Others may listen on the way.
    #[error(
        "listen on {0} without TLS: others could read tokens on the way\nHint: give `--tls CERTIFICATE KEY`, or listen on 127.0.0.1 and tunnel by ssh"
    )]
    Plain(SocketAddr),
    /// Anybody may call.
    #[error(
        "listen on {0} without tokens: everybody could run programs here\nHint: `slipway campaign token NAME --role admin --token-file FILE` makes one; give `--token-file FILE`"
    )]
    Open(SocketAddr),
    /// Tokens.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address.
    #[error("listen on {address}: {source}\nHint: `--listen` takes another address and port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error.
        source: io::Error,
    },
    /// A system call.
    #[error("serve: {0}")]
    Io(#[from] io::Error),
}

/// A server that has its port.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsConfig>,
    app: Shared,
    address: SocketAddr,
    token: Option<String>,
}

/// A configuration, which has no `Debug` of its own that hides keys.
struct TlsConfig(TlsAcceptor);

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsConfig")
    }
}

impl Server {
    /// Checks all settings and takes the port. Without tokens it makes one for this run.
    ///
    /// # Errors
    /// Where a setting is unsafe, or something cannot be read.
    pub fn open(options: Options) -> Result<Self, ServeError> {
        let Options { folder, listen, tls, tokens, names, program, converter } = options;
        let failed = |source| ServeError::Folder { path: folder.clone(), source };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let root = folder.canonicalize().map_err(failed)?;
        let is_local = listen.ip().is_loopback();
        if !is_local && tls.is_none() {
            return Err(ServeError::Plain(listen));
        }
        let tokens = tokens.map_or_else(|| Ok(Tokens::default()), |path| Tokens::read(&path))?;
        if !is_local && tokens.is_empty() {
            return Err(ServeError::Open(listen));
        }
        let is_secure = tls.is_some();
        let tls = tls.map(|(certificate, key)| tls::acceptor(&certificate, &key)).transpose()?.map(TlsConfig);
        let taken = |source| ServeError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        // A token of this run alone is in no file.
        let (tokens, printed) = if tokens.is_empty() {
            let own = Tokens::default();
            let secret = own.add("printed", Role::Admin)?;
            (own, Some(secret))
        } else {
            (tokens, None)
        };
        let app = Arc::new(App {
            shelf: Shelf::new(root, program),
            converter,
            tokens,
            sessions: Sessions::default(),
            names,
            is_secure,
        });
        Ok(Self { listener, tls, app, address, token: printed })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Address of the page, with the token of this run where there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let token = self.token.as_ref().map(|token| format!("?token={token}")).unwrap_or_default();
        format!("{scheme}://{}/{token}", self.address)
    }

    /// Serves for as long as the process lives.
    ///
    /// # Errors
    /// Where the event loop cannot be had.
    pub fn run(self) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(async {
            self.listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            Ok(listen::serve(listener, self.tls.map(|tls| tls.0), all(self.app)).await?)
        })
    }
}

fn all(app: Shared) -> Router {
    let outer = middleware::from_fn_with_state(app.clone(), guard::outer);
    page::routes()
        .merge(routes::routes(&app))
        .merge(openstudio::routes(&app))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(outer)
        .with_state(app)
}

/// The description of the API, in JSON (`OpenAPI` 3.1).
#[must_use]
pub fn openapi() -> String {
    routes::description().to_pretty_json().unwrap_or_default()
}
