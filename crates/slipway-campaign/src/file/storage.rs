use schemars::JsonSchema;
use serde::Deserialize;
use slipway_document::by_shape;
use slipway_document::de::Spanned;

/// The place of state and results.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Storage {
    /// A folder for state and results, relative to the campaign file; or `s3://BUCKET/PREFIX` for results.
    Place(Spanned<String>),
    /// A bucket on a server that speaks S3.
    Settings(Box<StorageSettings>),
}

by_shape!(Storage, "a folder, `s3://BUCKET/PREFIX`, or a map with `url`", Text => Place, Map => Settings);

/// A bucket on a server that speaks S3.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "storage: a map with `url`")]
pub(crate) struct StorageSettings {
    /// The bucket, and the beginning of the names of all objects: `s3://BUCKET/PREFIX`.
    #[schemars(regex(pattern = r"^s3://[a-z0-9][a-z0-9.-]*[a-z0-9](/[A-Za-z0-9._=/-]*)?$"))]
    pub(crate) url: Spanned<String>,
    /// URL of the server, as in `https://s3.example.org`. That of AWS when left out.
    pub(crate) endpoint: Option<Spanned<String>>,
    /// The region that requests are signed for. `us-east-1` when left out.
    #[schemars(regex(pattern = r"^[a-z0-9-]+$"))]
    pub(crate) region: Option<Spanned<String>>,
    /// File with the key, in the form of AWS' credentials file, relative to the campaign file. The variables
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` when left out.
    pub(crate) credentials: Option<Spanned<String>>,
    /// The folder for the state. `slipway-campaigns/NAME` when left out.
    pub(crate) folder: Option<Spanned<String>>,
}
