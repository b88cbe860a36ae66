//! Who may talk to whom over the fast path.
