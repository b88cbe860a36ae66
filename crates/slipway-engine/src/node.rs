//! A node from the inside: its root file system and its init.

pub(crate) mod error;
pub(crate) mod init;
mod laid;
pub(crate) mod link;
mod pieces;
pub(crate) mod rootfs;
pub(crate) mod user;
