//! Functions of the machine's own libraries, which are loaded at run time: building needs no header or library.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};

use rustix::io::Errno;

/// Libraries that are loaded, for as long as this process lives.
#[derive(Debug)]
pub(crate) struct Loaded(Vec<*mut c_void>);

impl Loaded {
    /// Loads libraries, such as `librdmacm.so.1`.
    pub(crate) fn open(names: &[&CStr]) -> Result<Self, String> {
        let load = |name: &&CStr| {
            // SAFETY: the library's own constructors run, as for any program that is linked with it.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            let missing = || {
                let name = name.to_string_lossy();
                format!("{name} is not on this machine (Debian: librdmacm1, ibverbs-providers)")
            };
            if handle.is_null() { Err(missing()) } else { Ok(handle) }
        };
        names.iter().map(load).collect::<Result<_, _>>().map(Self)
    }

    /// Where the first library that has a function has it.
    pub(crate) fn find(&self, name: &str) -> Result<*mut c_void, String> {
        let symbol = CString::new(name).map_err(|_| format!("`{name}` is no function"))?;
        let find = |handle: &*mut c_void| {
            // SAFETY: a handle that is never closed, and a name that ends with 0.
            let found = unsafe { libc::dlsym(*handle, symbol.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        self.0.iter().find_map(find).ok_or_else(|| format!("the machine's RDMA libraries have no {name}"))
    }
}

/// Declares a table of functions of C, with `load` to fill it. Each type must be that of the libraries' header.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident of $libraries:expr; $($name:ident: $type:ty,)*) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(super) struct $table {
            $(pub(super) $name: $type,)*
        }

        impl $table {
            /// Loads the libraries, for as long as this process lives.
            pub(super) fn load() -> Result<&'static Self, String> {
                let loaded = $crate::servant::Loaded::open($libraries)?;
                // SAFETY: the headers declare each of these functions with the type of its field.
                let table = Self { $($name: unsafe { std::mem::transmute_copy(&loaded.find(stringify!($name))?) },)* };
                Ok(Box::leak(Box::new(table)))
            }
        }
    };
}
pub(crate) use functions;

/// The error of the last call that set `errno`.
pub(crate) fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
