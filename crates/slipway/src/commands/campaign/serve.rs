//! `slipway campaign serve` and `slipway campaign token`

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use slipway_api::{Convert, Converted, Files, Options, Role, ServeError, Server, TokenError, Tokens};
use slipway_document::text::printable;
use slipway_study::campaign::FOLDER;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Serve campaigns over HTTP: a page to watch them, and an API
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server prints the address of its page, with a token that lasts as long as it
runs. Open it in a browser. Campaigns that the page starts go on when the server
ends, and those that `slipway campaign run` started are there too.

With --token-file, callers need a token of that file instead; `slipway campaign
token` makes them. Beyond this machine, --token-file and --tls are required.
/api/v1/openapi.json describes the API.

Examples:
  slipway campaign serve                     campaigns in slipway-campaigns
  slipway campaign serve --listen 127.0.0.1:0
  slipway campaign token ada --role run --token-file tokens
  slipway campaign serve --listen 0.0.0.0:8443 --tls chain.pem key.pem \\
    --token-file tokens --name sim.example.org")]
pub(super) struct Args {
    /// The folder that campaigns are in
    #[arg(default_value = FOLDER)]
    folder: PathBuf,
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Certificate chain and private key, PEM files
    #[arg(long, num_args = 2, value_names = ["CERTIFICATE", "KEY"])]
    tls: Option<Vec<PathBuf>>,
    /// File of tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Name that browsers call the server by, besides localhost; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self { folder, listen, tls, token_file: tokens, names } = self;
        let program = slipway_sys::exe::path().map_err(Failure::io("find this program's own file"))?;
        let tls = tls.and_then(|files| <[PathBuf; 2]>::try_from(files).ok()).map(|[chain, key]| (chain, key));
        let converter: Option<Arc<dyn Convert>> = Some(Arc::new(Importer));
        let server = Server::open(Options { folder: folder.clone(), listen, tls, tokens, names, program, converter })?;
        let answer = json!({"url": server.url(), "address": server.address(), "folder": folder});
        context.answer(&answer, |_| {
            format!("campaigns in {}\n{}\nCtrl-C ends the server; campaigns go on\n", folder.display(), server.url())
        })?;
        server.run()?;
        Ok(Exit::Success)
    }
}

/// Makes campaigns of analyses as `slipway campaign import` does.
#[derive(Debug)]
struct Importer;

impl Convert for Importer {
    fn convert(&self, analysis: &str, files: &Files) -> Result<Converted, String> {
        let Files { names, data_points } = files.clone();
        let files = slipway_openstudio::Files { names, data_points };
        let made = slipway_openstudio::read(analysis, &files).map_err(|error| error.to_string())?;
        let mut campaign = made.campaign;
        for note in made.changes {
            // One line, so that nothing of the analysis ends the comment. Writing to a string cannot fail.
            let note = printable(&note.to_string()).replace('\n', " ");
            let _ = writeln!(campaign, "# otherwise: {note}");
        }
        Ok(Converted { campaign, files: made.files })
    }
}

/// Make a token for `slipway campaign serve`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The token is printed once: the file keeps a digest of it. A server that runs
reads the file at its next start; its page and API make tokens at once.

Roles: read sees everything, run also starts campaigns, which runs programs on
this machine, and admin also deletes campaigns and makes tokens.

Examples:
  slipway campaign token ada --role run --token-file tokens
  slipway campaign token ada --revoke --token-file tokens")]
pub(super) struct Token {
    /// Name of the token
    name: String,
    /// Role: read, run or admin
    #[arg(long, default_value_t = Role::Read)]
    role: Role,
    /// File of tokens
    #[arg(long = "token-file", value_name = "FILE")]
    file: PathBuf,
    /// Remove the token instead
    #[arg(long, conflicts_with = "role")]
    revoke: bool,
}

impl Token {
    pub(super) fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Self { name, role, file, revoke } = self;
        let tokens = Tokens::read(&file).map_err(ServeError::from)?;
        if revoke {
            if !tokens.remove(&name).map_err(ServeError::from)? {
                return Err(Failure::new(Exit::NotFound, &format!("find token `{name}`: the file has none")));
            }
            context.tell(&json!({"name": name, "revoked": true}), |_| format!("revoked {name}\n"))?;
            return Ok(Exit::Success);
        }
        let token = tokens.add(&name, role).map_err(|error| match error {
            TokenError::Name(_) => Failure::usage(error),
            other => ServeError::from(other).into(),
        })?;
        context.answer(&json!({"name": name, "role": role, "token": token}), |_| format!("{token}\n"))?;
        Ok(Exit::Success)
    }
}
