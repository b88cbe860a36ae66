//! TLS 1.3 by rustls between programs that know each other's key beforehand: raw public keys (RFC 7250) of Ed25519 (RFC 8410).
//! There is no certificate and no authority.

mod key;
mod peer;

use std::sync::Arc;

pub use key::{OwnKey, PublicKey, TextError};
use peer::Known;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::{ClientConfig, Error, ServerConfig};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A server with this key. Where there are `clients`, it lets in these alone, which prove their keys; else all.
///
/// # Errors
/// When rustls refuses the key.
pub fn server(own: &OwnKey, clients: Option<Vec<PublicKey>>) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(Arc::new(Known::new(clients, provider()))),
        None => builder.with_no_client_auth(),
    };
    Ok(builder.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own.certified()))))
}

/// A client of the server with this key. It proves its `own` key, if it has one.
///
/// # Errors
/// When rustls refuses the key.
pub fn client(server: PublicKey, own: Option<&OwnKey>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Known::new(vec![server], provider())));
    Ok(match own {
        Some(own) => {
            builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.certified())))
        }
        None => builder.with_no_client_auth(),
    })
}
