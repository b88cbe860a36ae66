//! Every request passes here: its host, its caller, its time; and every answer: its headers.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::Shared;
use crate::error::ApiError;
use crate::sessions::Session;
use crate::tokens::{self, Key, Role};

/// Header with the page's proof that a request is its own.
const CSRF: &str = "x-csrf-token";
/// Longest time until an answer begins.
const PATIENCE: Duration = Duration::from_mins(1);
/// The same for requests with an archive.
const UPLOAD: Duration = Duration::from_mins(15);

/// The caller of a request that may be answered.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The token.
    pub(crate) key: Key,
    /// The proof that a page's request needs to change something; empty for a caller with a token.
    pub(crate) csrf: String,
}

/// Lets requests for this server's names alone pass, and bounds their time. Headers of answers keep browsers strict.
pub(crate) async fn outer(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = if is_ours(host, &app.names) {
        let is_upload = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind != "application/json");
        let patience = if is_upload { UPLOAD } else { PATIENCE };
        let answer = tokio::time::timeout(patience, next.run(request)).await;
        answer.unwrap_or_else(|_| ApiError::late().into_response())
    } else {
        // A page of another site whose name leads here (DNS rebinding) sends its own name.
        let text = "answer for this name\nHint: `--name` says by which names the server is called";
        ApiError::misdirected(text).into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in STRICT {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    }
    if app.is_secure {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    response
}

/// Headers of every answer that has none of its own.
const STRICT: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// Whether a `Host` header names this server. An address does always: only names can be made to lead elsewhere.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Lets callers pass who may do what they ask for.
pub(crate) async fn inner(
    State(app): State<Shared>,
    // The whole path: a nested router sees its own part alone.
    OriginalUri(uri): OriginalUri,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&app, request.method(), &uri, request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

fn admit(app: &Shared, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let needed = needed(method, uri.path());
    let caller = if let Some(secret) = secret(headers) {
        let key = secret.and_then(|secret| app.tokens.find(&secret)).ok_or_else(ApiError::unknown)?;
        Caller { key, csrf: String::new() }
    } else {
        visitor(app, method, headers)?
    };
    if caller.key.role < needed {
        let text = format!("the token `{}` may {}, and this takes {needed}", caller.key.name, caller.key.role);
        return Err(ApiError::forbidden(&text));
    }
    Ok(caller)
}

/// The caller by its cookie: a page.
fn visitor(app: &Shared, method: &Method, headers: &HeaderMap) -> Result<Caller, ApiError> {
    let Session { key, csrf, .. } = app.sessions.find(headers).ok_or_else(ApiError::unknown)?;
    // A revoked token ends its sessions.
    if !app.tokens.list().contains(&key) {
        return Err(ApiError::unknown());
    }
    let said = headers.get(CSRF).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_proven = tokens::same(&tokens::hash(said), &tokens::hash(&csrf)) && is_same_origin(headers);
    if is_read(method) || is_proven {
        return Ok(Caller { key, csrf });
    }
    let text = "change something by a cookie alone\nHint: send the session's `csrf` as X-CSRF-Token, or a token";
    Err(ApiError::forbidden(text))
}

/// One rule for all routes, so that none can be forgotten.
fn needed(method: &Method, path: &str) -> Role {
    match *method {
        _ if path.starts_with("/api/v1/tokens") => Role::Admin,
        // Everybody may log out.
        _ if is_read(method) || path == "/api/v1/session" => Role::Read,
        Method::DELETE => Role::Admin,
        _ => Role::Run,
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Browsers say where a request that changes something comes from.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    text(header::ORIGIN).is_none_or(|origin| origin.split_once("://").is_some_and(|(_, from)| from == host))
}

/// The token of a request. `None` without an `Authorization` header; `Some(None)` with one that has no token.
#[expect(clippy::option_option, reason = "a header without a token is refused, whatever the cookie says")]
fn secret(headers: &HeaderMap) -> Option<Option<String>> {
    let value = headers.get(header::AUTHORIZATION)?;
    let token = || {
        let (scheme, rest) = value.to_str().ok()?.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(rest.trim().to_owned());
        }
        // Clients that know no tokens send it as the password in their server's address.
        let pair = scheme.eq_ignore_ascii_case("basic").then(|| base64(rest.trim()))??;
        let pair = String::from_utf8(pair).ok()?;
        pair.split_once(':').map(|(_, password)| password.to_owned())
    };
    Some(token())
}

/// RFC 4648 section 4.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    for block in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = block.iter().try_fold(0, |bits, &byte| Some(bits << 6 | digit(byte)?))? << (6 * (4 - block.len()));
        let [_, parts @ ..] = u32::to_be_bytes(bits);
        bytes.extend_from_slice(&parts[..block.len().checked_sub(1).filter(|count| *count > 0)?]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_and_names_that_were_given() {
        let names = ["sim.example".to_owned()];
        for host in ["127.0.0.1:8080", "127.0.0.1", "[::1]:80", "[::1]", "LOCALHOST:1", "sim.example:443", "10.0.0.7"] {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example:80", "[x]"]
        {
            assert!(!is_ours(host, &names), "{host}");
        }
    }

    #[test]
    fn base64_is_read_or_refused() {
        assert_eq!(base64("dTpw").as_deref(), Some(&b"u:p"[..]));
        assert_eq!(base64("dTpwYQ==").as_deref(), Some(&b"u:pa"[..]));
        assert_eq!(base64("dTpwYXM=").as_deref(), Some(&b"u:pas"[..]));
        assert_eq!((base64("d"), base64("d%pw")), (None, None));
    }

    #[test]
    fn only_the_right_role_may() {
        let path = "/api/v1/campaigns/a/start";
        assert_eq!(needed(&Method::GET, path), Role::Read);
        assert_eq!(needed(&Method::POST, path), Role::Run);
        assert_eq!(needed(&Method::PATCH, path), Role::Run);
        assert_eq!(needed(&Method::DELETE, "/api/v1/campaigns/a"), Role::Admin);
        assert_eq!(needed(&Method::GET, "/api/v1/tokens"), Role::Admin);
    }
}
