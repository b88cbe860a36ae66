//! TLS 1.3, by rustls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The reason why a certificate is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("read {}: {source}\nHint: it is PEM text, with `-----BEGIN …` lines", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: pem::Error,
    },
    /// Certificate and key.
    #[error("use the certificate {}: {source}", path.display())]
    Certificate {
        /// The certificate's file.
        path: PathBuf,
        /// The error.
        source: rustls::Error,
    },
}

/// Reads a certificate's chain and its key.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let read = |path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { path, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(read(certificate))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(read(key))?;
    let failed = |source| TlsError::Certificate { path: certificate.to_owned(), source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        // Not rustls' default: what another crate of the same program asks of rustls would bring TLS 1.2 along.
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(failed)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
