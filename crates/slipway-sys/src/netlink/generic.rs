//! The kernel's generic netlink families (`genetlink`, Documentation/userspace-api/netlink/intro.rst). A request for
//! one by name tells whether a subsystem is there, and makes the kernel load its module if there is one.

use std::io;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::NLMSG_ERROR;

/// The controller's own family, and its request for a family by name.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NLM_F_REQUEST: u16 = 1;

/// Whether the kernel has the generic netlink family `name`, e.g. `ovs_datapath`.
///
/// # Errors
/// When the socket fails or the kernel's answer makes no sense.
pub fn has_generic_family(name: &str) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.send(&get_family(name)?, 0)?;
    let mut buffer = [0u8; 4096];
    let received = socket.recv(&mut &mut buffer[..], 0)?;
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "an answer too short for a netlink message");
    let kind = buffer[..received].get(4..6).ok_or_else(nonsense)?;
    if u16::from_ne_bytes([kind[0], kind[1]]) != NLMSG_ERROR {
        return Ok(true);
    }
    let code = buffer[..received].get(16..).and_then(<[u8]>::first_chunk::<4>).ok_or_else(nonsense)?;
    match -i32::from_ne_bytes(*code) {
        libc::ENOENT => Ok(false),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn get_family(name: &str) -> io::Result<Vec<u8>> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a family's name is at most 15 bytes");
    let value = u16::try_from(4 + name.len() + 1).map_err(too_long)?;
    let attribute = usize::from(value).next_multiple_of(4);
    let length = u32::try_from(16 + 4 + attribute).map_err(too_long)?;
    let mut message = Vec::with_capacity(length as usize);
    message.extend(length.to_ne_bytes());
    message.extend(GENL_ID_CTRL.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port: there is one question, and the kernel knows who asks.
    message.extend([0; 8]);
    message.extend([CTRL_CMD_GETFAMILY, 1, 0, 0]);
    message.extend(value.to_ne_bytes());
    message.extend(CTRL_ATTR_FAMILY_NAME.to_ne_bytes());
    message.extend(name.bytes());
    message.resize(length as usize, 0);
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_there_and_nonsense_is_not() {
        assert!(has_generic_family("nlctrl").expect("asks"));
        assert!(!has_generic_family("no_such_thing").expect("asks"));
    }
}
