use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::epoll_entry::EpollEntry;
use crate::metadata::SocketMetadata;
use crate::nodes::{Lab, SERVER};

/// A router ended when its program had the socket, and not the entry of its epoll instance. The program calls again.
#[test]
fn an_epoll_entry_that_a_router_left_is_made() {
    let lab = Lab::new();
    let at = SocketAddr::new(SERVER.into(), 80);
    let _listener = lab.server(move || TcpListener::bind(at).expect("bound"));
    let router = Arc::clone(&lab.router);
    lab.client(move || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
        let instance = epoll::create(CreateFlags::CLOEXEC).expect("an instance");
        let events = EventFlags::OUT | EventFlags::ET;
        epoll::add(&instance, &socket, EventData::new_u64(77), events).expect("added");
        assert_eq!(rustix::net::connect(&socket, &at), Err(Errno::INPROGRESS));
        epoll::delete(&instance, &socket).expect("it was made again");
        let metadata = router.parts.metadata.of(&socket).expect("read").expect("it was handed out");
        assert_eq!(metadata.unregistered, None);
        let unregistered = Some(EpollEntry { epoll: instance.as_raw_fd(), events: events.bits(), data: 77 });
        router.parts.metadata.put(&socket, &SocketMetadata { unregistered, ..metadata }).expect("written");

        assert_eq!(rustix::net::connect(&socket, &at), Ok(()));
        let mut found = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 4];
        let count = epoll::wait(&instance, &mut found, Some(&Timespec::default())).expect("looked");
        let data: Vec<u64> = found[..count].iter().map(|event| event.data.u64()).collect();
        assert_eq!(data, [77]);
        assert_eq!(router.parts.metadata.of(&socket).expect("read").expect("there").unregistered, None);
    });
}
