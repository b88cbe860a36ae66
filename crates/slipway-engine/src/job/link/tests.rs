//! Links against links, over pipes.

use std::io::{Read as _, Write as _};

use rustix::event::{PollFd, poll};

use super::*;
use crate::exec::pump::{pipe_from_program, pipe_to_program};

fn pair() -> (Link, Link) {
    let ((here_in, there_out), (there_in, here_out)) = (io::pipe().unwrap(), io::pipe().unwrap());
    let link = |input: io::PipeReader, output: io::PipeWriter| Link::new(input.into(), output.into()).unwrap();
    (link(here_in, here_out), link(there_in, there_out))
}

/// Lets a link act on all that has happened by now. `false`: nothing has.
fn turn(link: &mut Link) -> io::Result<bool> {
    let on = link.waits_for();
    let mut polled: Vec<PollFd<'_>> = on.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let events: Vec<Event> =
        polled.iter().zip(&on).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, (_, _, event))| *event).collect();
    for &event in &events {
        assert!(link.handle::<String>(event)?.is_empty());
    }
    Ok(!events.is_empty())
}

#[test]
fn a_stream_crosses_whole_and_waits_for_its_reader() {
    let (mut from, mut to) = pair();
    let (writer, pipe) = pipe_from_program().unwrap();
    let (mut reader, sink) = io::pipe().unwrap();
    never_block(&sink).unwrap();
    from.source((7, 1), pipe);
    to.sink((7, 1), sink.into());
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let writing = {
        let sent = sent.clone();
        std::thread::spawn(move || std::fs::File::from(writer).write_all(&sent))
    };
    let mut received = Vec::new();
    let mut bytes = [0; 10_000];
    while received.len() < sent.len() {
        // Nobody reads for as long as the links have anything to do.
        while turn(&mut from).unwrap() | turn(&mut to).unwrap() {
            assert!(to.sinks.values().all(|sink| sink.waiting.len() <= WINDOW), "the window bounds what waits");
            assert!(from.out.len() <= CROWDED + WINDOW);
            if from.sources.values().all(|source| source.room == 0) {
                break;
            }
        }
        if !writing.is_finished() || !to.sinks.is_empty() || received.len() < sent.len() {
            let poll_one = &mut [PollFd::new(&reader, PollFlags::IN)];
            if poll(poll_one, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap() > 0 {
                let count = reader.read(&mut bytes).unwrap();
                received.extend_from_slice(&bytes[..count]);
            }
        }
    }
    writing.join().unwrap().unwrap();
    while turn(&mut from).unwrap() | turn(&mut to).unwrap() {}
    assert!(received == sent && to.sinks.is_empty() && from.sources.is_empty(), "its end crosses too");
}

#[test]
fn a_source_whose_reader_is_gone_ends() {
    let (mut from, mut to) = pair();
    let (writer, pipe) = pipe_from_program().unwrap();
    let (reader, sink) = pipe_to_program().unwrap();
    from.source((1, 2), pipe);
    to.sink((1, 2), sink);
    drop(reader);
    while turn(&mut from).unwrap() | turn(&mut to).unwrap() {}
    assert!(from.sources.is_empty() && to.sinks.is_empty());
    let written = std::fs::File::from(writer).write(b"x");
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn more_than_the_window_or_no_frame_ends_the_link() {
    for wire in [b"\0\0\0\x01\x09".to_vec(), b"\xff\xff\xff\xff".to_vec(), b"\0\0\0\0".to_vec(), {
        let mut wire = VecDeque::new();
        for _ in 0..=WINDOW / CHUNK {
            Frame::Data((1, 1), &[0; CHUNK]).write(&mut wire);
        }
        wire.into()
    }] {
        let ((input, mut to), (_from, output)) = (io::pipe().unwrap(), io::pipe().unwrap());
        let mut link = Link::new(input.into(), output.into()).unwrap();
        // Full, so that nothing more finds a place in it.
        let (_reader, full) = pipe_to_program().unwrap();
        while rustix::io::write(&full, &[0; 4096]).is_ok() {}
        link.sink((1, 1), full);
        let writing = std::thread::spawn(move || to.write_all(&wire));
        let error = loop {
            match link.handle::<String>(Event::Input) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let _ = writing.join();
    }
}
