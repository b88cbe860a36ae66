//! The place of state and results.

use std::path::Path;

use slipway_document::de::Spanned;
use slipway_document::errors::Report;

use crate::file::{Storage as Written, StorageSettings};
use crate::model::{Bucket, Storage};

/// The region of servers that have none.
const REGION: &str = "us-east-1";
const SCHEME: &str = "s3://";

pub(super) fn storage(written: Option<&Written>, base_dir: &Path, report: &mut Report) -> Storage {
    match written {
        None => Storage::default(),
        Some(Written::Place(place)) if place.value.contains("://") => {
            Storage { folder: None, bucket: bucket(place, report) }
        }
        Some(Written::Place(folder)) => Storage { folder: Some(base_dir.join(&folder.value)), bucket: None },
        Some(Written::Settings(settings)) => {
            let StorageSettings { url, endpoint, region, credentials, folder } = settings.as_ref();
            let bucket = bucket(url, report).map(|bucket| Bucket {
                endpoint: endpoint.as_ref().map(|endpoint| server(endpoint, report)),
                region: region.as_ref().map_or(bucket.region, |region| word(region, report)),
                credentials: credentials.as_ref().map(|path| base_dir.join(&path.value)),
                ..bucket
            });
            Storage { folder: folder.as_ref().map(|folder| base_dir.join(&folder.value)), bucket }
        }
    }
}

fn bucket(url: &Spanned<String>, report: &mut Report) -> Option<Bucket> {
    let Some(place) = url.value.strip_prefix(SCHEME) else {
        report.add(url.at, "this is no address of a bucket", "write `s3://BUCKET/PREFIX`, or a folder's path");
        return None;
    };
    let (name, prefix) = place.split_once('/').unwrap_or((place, ""));
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = (3..=63).contains(&name.len())
        && name.chars().all(|c| ends(c) || ".-".contains(c))
        && name.starts_with(ends)
        && name.ends_with(ends);
    if !is_name {
        report.add(url.at, "no bucket has this name", "write 3 to 63 small letters, digits, `-` and `.`");
    }
    let prefix = prefix.trim_end_matches('/');
    let is_part = |part: &str| {
        let is_plain = part.chars().all(|c| c.is_ascii_alphanumeric() || "._=-".contains(c));
        !part.is_empty() && part != "." && part != ".." && is_plain
    };
    if !prefix.is_empty() && !prefix.split('/').all(is_part) {
        let help = "write letters, digits, `.`, `_`, `=` and `-`, in parts with one `/` between them";
        report.add(url.at, "objects' names cannot begin so", help);
    }
    let (name, prefix, region) = (name.to_owned(), prefix.to_owned(), REGION.to_owned());
    Some(Bucket { name, prefix, endpoint: None, region, credentials: None })
}

/// A server's URL. Nobody writes a key into it, since the campaign file is copied to all workers.
fn server(url: &Spanned<String>, report: &mut Report) -> String {
    let text = url.value.trim_end_matches('/');
    let name = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]/".contains(c));
    if !name.is_some_and(is_name) {
        report.add(url.at, "this is no server's URL", "write for example `https://s3.example.org`");
    }
    text.to_owned()
}

fn word(region: &Spanned<String>, report: &mut Report) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if region.value.is_empty() || !region.value.chars().all(is_plain) {
        report.add(region.at, "no region has this name", "write for example `eu-central-1`, or leave it out");
    }
    region.value.clone()
}
