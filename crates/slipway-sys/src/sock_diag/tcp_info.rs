//! The kernel's figures of a TCP connection: `struct tcp_info` (`include/uapi/linux/tcp.h`, Linux 6.1 and later).

use serde::Serialize;

/// A connection's counts and state. A field that an older kernel does not have is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt: u32,
    /// Congestion window, segments.
    pub congestion_window: u32,
    /// Size of a sent segment, bytes.
    pub segment: u32,
    /// Segments sent again, in all.
    pub retransmits: u32,
    /// Rate at which the kernel paces, bytes a second; the greatest number where it does not.
    pub pacing_rate: u64,
    /// Rate of the last delivery that was measured, bytes a second.
    pub delivery_rate: u64,
    /// Time with data to send or to be acknowledged, microseconds.
    pub busy: u64,
    /// The part of `busy` in which the receiver's window was full, microseconds.
    pub receiver_limited: u64,
    /// The part of `busy` in which the send buffer was full, microseconds.
    pub buffer_limited: u64,
    /// Payload sent, repeats included, bytes.
    pub sent: u64,
}

impl TcpInfo {
    /// Reads the bytes that [`TcpSocket::info`](super::TcpSocket) has, of whatever length.
    #[must_use]
    pub fn parse(info: &[u8]) -> Self {
        let small =
            |at: usize| info.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_ne_bytes);
        let large =
            |at: usize| info.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_ne_bytes);
        Self {
            segment: small(16),
            rtt: small(68),
            congestion_window: small(80),
            retransmits: small(100),
            pacing_rate: large(104),
            delivery_rate: large(160),
            busy: large(168),
            receiver_limited: large(176),
            buffer_limited: large(184),
            sent: large(200),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;
    use crate::sock_diag::tcp_sockets;

    #[test]
    fn a_receiver_that_does_not_read_limits_the_sender() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
        let (_server, _) = listener.accept().expect("accepts");
        client.set_nonblocking(true).expect("sets");
        // Until neither the receiver's window nor the send buffer has room.
        let block = vec![0; 65536];
        while client.write(&block).is_ok() {}
        let own = client.local_addr().expect("bound");
        let sockets = tcp_sockets().expect("asks");
        let info = TcpInfo::parse(&sockets.iter().find(|socket| socket.local == own).expect("it is open").info);
        assert!(info.sent > 1000 && info.segment > 500 && info.congestion_window > 0, "{info:?}");
        assert!(info.receiver_limited <= info.busy && info.buffer_limited <= info.busy, "{info:?}");
        assert_eq!(info.retransmits, 0);
    }

    proptest! {
        #[test]
        fn any_length_is_read(info: Vec<u8>) {
            let _ = TcpInfo::parse(&info);
        }
    }

    #[test]
    fn fields_have_the_kernels_places() {
        let mut info = vec![0; 248];
        info[100..104].copy_from_slice(&7_u32.to_ne_bytes());
        info[168..176].copy_from_slice(&9_u64.to_ne_bytes());
        info[176..184].copy_from_slice(&8_u64.to_ne_bytes());
        let read = TcpInfo::parse(&info);
        assert_eq!((read.retransmits, read.busy, read.receiver_limited), (7, 9, 8));
        // Linux 4.8 ended before these.
        assert_eq!(TcpInfo::parse(&info[..168]).busy, 0);
    }
}
