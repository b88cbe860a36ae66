//! What routers of a lab say to each other.
