//! `slipway agent key`

use serde::Serialize;
use slipway_agent::keys::Keys;
use slipway_tls::PublicKey;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Serialize)]
struct Answer {
    key: PublicKey,
}

pub(super) fn run(context: &Context, keys: &Keys) -> Result<Exit, Failure> {
    let answer = Answer { key: keys.own()?.public() };
    context.answer(&answer, |answer| format!("{}\n", answer.key))?;
    Ok(Exit::Success)
}
