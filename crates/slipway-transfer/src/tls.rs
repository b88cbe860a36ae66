//! TLS 1.3 with a key of the server's that follows from the token: no certificate, no authority.

use std::sync::Arc;

use rustls::{ClientConfig, Error, ServerConfig};
use slipway_tls::OwnKey;

use crate::token::Token;

/// Label of the exporter that a client's proof is bound to (RFC 8446, section 7.5).
const EXPORTER: &[u8] = b"EXPERIMENTAL slipway transfer 1";

fn key(token: &Token) -> Result<OwnKey, Error> {
    OwnKey::from_seed(&token.server_seed())
}

/// The server's settings: its key follows from the token.
///
/// # Errors
/// Where the library refuses the key.
pub fn server(token: &Token) -> Result<Arc<ServerConfig>, Error> {
    let mut config = slipway_tls::server(&key(token)?, None)?;
    // A client's streams flow one way: nobody would read a ticket.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The client's settings: it takes a server with the token's key alone.
///
/// # Errors
/// As [`server`].
pub fn client(token: &Token) -> Result<Arc<ClientConfig>, Error> {
    Ok(Arc::new(slipway_tls::client(key(token)?.public(), None)?))
}

/// Bytes that only the two ends of this connection know.
///
/// # Errors
/// Before the end of the handshake.
pub fn binding<S>(connection: &rustls::ConnectionCommon<S>) -> Result<[u8; 32], Error> {
    connection.export_keying_material([0; 32], EXPORTER, None)
}
