//! Whatever bytes come to a control socket, in whatever pieces: they are messages or are refused, and a message that is taken says
//! the same when it is sent on.

#![cfg_attr(fuzzing, no_main)]

use slipway_engine::protocol::{Frames, Hello, LARGEST_REQUEST, PlayerRequest, Reply, Request, parse};

slipway_fuzz::target!(|bytes: &[u8]| {
    // The first byte is the length of a piece.
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let (mut frames, mut whole) = (Frames::default(), Frames::default());
    whole.push(bytes);
    let mut length = 0;
    for piece in bytes.chunks(usize::from(piece).max(1)) {
        frames.push(piece);
        loop {
            match frames.take(LARGEST_REQUEST) {
                Ok(Some(message)) => {
                    assert_eq!(whole.take(LARGEST_REQUEST).ok().flatten().as_ref(), Some(&message));
                    length += 4 + message.len();
                    read(&message);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    assert!(length <= bytes.len() && frames.is_empty() == (length == bytes.len()));
});

fn read(message: &[u8]) {
    if let Ok(request) = parse::<Request>(message) {
        let text = serde_json::to_vec(&request).expect("plain data");
        assert_eq!(parse::<Request>(&text).as_ref(), Ok(&request));
        let _ = request.nodes();
    }
    let _ = parse::<PlayerRequest>(message);
    if let Ok(hello) = parse::<Hello>(message) {
        let _ = hello.check();
    }
    if let Ok(reply) = parse::<Reply<()>>(message) {
        let _ = reply.outcome.map_err(|error| error.to_string());
    }
}
