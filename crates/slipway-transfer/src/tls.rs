//! TLS 1.3 by rustls, with a raw public key (RFC 7250) that follows from the token: no certificate, no authority.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use crate::token::Token;

/// The bytes before the 32 bytes of a seed in PKCS #8 (RFC 8410, section 7).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Label of the exporter that a client's proof is bound to (RFC 8446, section 7.5).
const EXPORTER: &[u8] = b"EXPERIMENTAL slipway transfer 1";

/// The server's key, and its public half.
fn key(token: &Token) -> Result<(Arc<dyn SigningKey>, SubjectPublicKeyInfoDer<'static>), Error> {
    let document = [&PKCS8[..], &token.server_seed()].concat();
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(document))?;
    let public = key.public_key().ok_or_else(|| Error::General("a key without its public half".into()))?.into_owned();
    Ok((key, public))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(crate) fn server(token: &Token) -> Result<Arc<ServerConfig>, Error> {
    let (key, public) = key(token)?;
    let certified = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified))));
    // A client's streams flow one way: nobody would read a ticket.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

pub(crate) fn client(token: &Token) -> Result<Arc<ClientConfig>, Error> {
    let (_, public) = key(token)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { public, provider: provider() }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Bytes that only the two ends of this connection know.
pub(crate) fn binding<S>(connection: &rustls::ConnectionCommon<S>) -> Result<[u8; 32], Error> {
    connection.export_keying_material([0; 32], EXPORTER, None)
}

/// Takes the one key that follows from the token.
#[derive(Debug)]
struct Pinned {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if end_entity.as_ref() == self.public.as_ref() {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General("the other end has another token".into()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let public = SubjectPublicKeyInfoDer::from(cert.as_ref());
        verify_tls13_signature_with_raw_key(message, &public, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
