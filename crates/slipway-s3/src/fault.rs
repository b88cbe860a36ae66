//! One clear sentence for each error of a server.

use std::error::Error as _;

use object_store::Error;
use slipway_campaign::model::Bucket;
use slipway_results::objects::service::Fault;

/// Codes of answers to a key that is unknown or wrong.
const OF_KEYS: [&str; 5] =
    ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "NotSignedUp"];

/// The error of a request for a bucket. `doing` is a verb with its object, as in "store results in".
pub(crate) fn fault(doing: &str, bucket: &Bucket, error: &Error) -> Fault {
    let server = bucket.endpoint.as_deref().unwrap_or("AWS");
    let text = error.to_string();
    let code = code(&text);
    let what = match (code, error) {
        (Some("NoSuchBucket"), _) => {
            format!("{server} has no bucket `{}`\nHint: make it, or correct `storage:`", bucket.name)
        }
        (Some(code), _) if OF_KEYS.contains(&code) => {
            format!(
                "{server} refuses the key ({code})\nHint: correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the file `credentials`"
            )
        }
        (_, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => format!(
            "{server} denies access ({})\nHint: the key needs the rights to get, put, list and delete objects there",
            code.unwrap_or("no reason given")
        ),
        (Some(code), _) => format!("{server} answers {code}"),
        (None, Error::NotFound { .. }) => format!("{server} has no such object"),
        (None, error) => format!(
            "{server} gives no answer: {}\nHint: look whether it runs, and whether `endpoint` is right",
            root(error)
        ),
    };
    Fault::Service(format!("{doing} {bucket}: {what}"))
}

/// The code in a server's answer. The rest of the answer may repeat parts of the request, and is not shown.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_word = !code.is_empty() && code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric());
    is_word.then_some(code)
}

/// The innermost reason, which the layers around it repeat.
fn root(error: &Error) -> String {
    let mut reason = error.source();
    while let Some(inner) = reason.and_then(std::error::Error::source) {
        reason = Some(inner);
    }
    reason.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_an_answer_is_told() {
        let answer = "403: <Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>AK</AWSAccessKeyId></Error>";
        assert_eq!(code(answer), Some("InvalidAccessKeyId"));
        assert_eq!(code("<Code>two words</Code>"), None);
        assert_eq!(code("connection refused"), None);
    }
}
