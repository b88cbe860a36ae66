//! The key that requests are signed with. It is in no argument, no message and no file of ours.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use slipway_campaign::model::Bucket;
use slipway_results::objects::service::Fault;

const ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// A key. It has no `Debug`, so that no message shows it.
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: String,
    /// Of keys that are lent for some hours.
    pub(crate) token: Option<String>,
}

/// Finds the key of a bucket: in its file, or in environment variables.
pub(crate) fn find(bucket: &Bucket) -> Result<Key, Fault> {
    let failed = |what: &str| Fault::Service(format!("find the key of {bucket}: {what}"));
    let Some(path) = &bucket.credentials else {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some((id, secret)) = variable(ID).zip(variable(SECRET)) else {
            return Err(failed(&format!(
                "{ID} and {SECRET} are not both set\nHint: export them, or write `credentials: FILE` below `storage:`"
            )));
        };
        return Ok(Key { id, secret, token: variable(TOKEN) });
    };
    let text = read(path).map_err(|error| failed(&format!("{}: {error}", path.display())))?;
    parse(&text).ok_or_else(|| {
        failed(&format!(
            "{}: it has no `aws_access_key_id` and `aws_secret_access_key` in its part `[default]`\nHint: write a line `NAME = VALUE` for each",
            path.display()
        ))
    })
}

/// Reads a file that nobody else may read.
fn read(path: &Path) -> io::Result<String> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "others may read it\nHint: `chmod 600 {}`, since it has a secret",
            path.display()
        )));
    }
    fs::read_to_string(path)
}

/// The key in the part `[default]`, or in a file without parts: AWS' credentials file.
fn parse(text: &str) -> Option<Key> {
    let (mut id, mut secret, mut token, mut is_ours) = (None, None, None, true);
    for line in text.lines().map(str::trim) {
        if let Some(part) = line.strip_prefix('[') {
            is_ours = part.trim_end_matches(']').trim() == "default";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_ours) {
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim() {
                "aws_access_key_id" => id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    let (id, secret) = id.zip(secret)?;
    Some(Key { id, secret, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(String, String, Option<String>)> {
        parse(text).map(|Key { id, secret, token }| (id, secret, token))
    }

    #[test]
    fn a_key_is_read_from_the_default_part() {
        let two = "[other]\naws_access_key_id = no\naws_secret_access_key = no\n\
                   [default]\naws_access_key_id=AK\naws_secret_access_key = a/b=c\naws_session_token = t\n";
        assert_eq!(parts(two), Some(("AK".into(), "a/b=c".into(), Some("t".into()))));
        let plain = "# mine\naws_access_key_id = AK\naws_secret_access_key = s\n";
        assert_eq!(parts(plain), Some(("AK".into(), "s".into(), None)));
        assert_eq!(parts("[default]\naws_access_key_id = AK\naws_secret_access_key =\n"), None);
    }
}
