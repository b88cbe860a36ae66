//! Sessions of pages: a cookie stands for a token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};

use crate::tokens::{self, Key};

/// Name of the page's cookie.
const COOKIE: &str = "slipway_session";
/// Life of a session.
const SESSION: Duration = Duration::from_hours(12);
/// Most sessions at once; the oldest ends for a new one.
const MOST_SESSIONS: usize = 1000;

/// Sessions of pages, by the hash of their cookie.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<[u8; 32], Session>>);

/// A session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    /// The token that began it.
    pub(crate) key: Key,
    /// The proof that a page's request needs to change something.
    pub(crate) csrf: String,
    begin: Instant,
}

impl Sessions {
    /// Begins a session. Returns the header that sets its cookie.
    pub(crate) fn begin(&self, key: Key, is_secure: bool) -> Option<HeaderValue> {
        let cookie = tokens::secret();
        let session = Session { key, csrf: tokens::secret(), begin: Instant::now() };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| session.begin.elapsed() < SESSION);
        if all.len() >= MOST_SESSIONS
            && let Some(oldest) = all.iter().min_by_key(|(_, session)| session.begin).map(|(hash, _)| *hash)
        {
            all.remove(&oldest);
        }
        all.insert(tokens::hash(&cookie), session);
        set(&cookie, SESSION, is_secure)
    }

    /// Ends a session. Returns the header that removes its cookie.
    pub(crate) fn end(&self, headers: &HeaderMap, is_secure: bool) -> Option<HeaderValue> {
        let hash = cookie(headers).map(tokens::hash);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|known, _| Some(*known) != hash);
        set("", Duration::ZERO, is_secure)
    }

    /// The session of a request.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<Session> {
        // The map is asked by a hash, so its time tells nothing about cookies.
        let hash = tokens::hash(cookie(headers)?);
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned()?;
        (session.begin.elapsed() < SESSION).then_some(session)
    }
}

fn set(cookie: &str, life: Duration, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={cookie}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}", life.as_secs());
    HeaderValue::from_str(&text).ok()
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}
