//! What a call that fails returns: what is wrong, where, and what to do.

use std::fmt;

/// The kind of an error, with the number that the C interface gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// An argument, count or size that cannot be right.
    Argument = 1,
    /// A spec that is not executed.
    Spec = 2,
    /// No such variant, or it cannot run on this CPU.
    Variant = 3,
    /// NaN, infinity or a magnitude beyond fp16; the place is set.
    Value = 4,
    /// The allocator refused.
    Memory = 5,
    /// Page or dump bytes that are damaged.
    Page = 6,
    /// Sound bytes that belong to another cache.
    Identity = 7,
    /// Needs fp16 data that exists only as codes.
    Truncate = 8,
    /// Needs a page that was retired.
    Span = 9,
    /// Not possible in this state.
    State = 10,
}

/// Where a number lies that cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Layer of the cache; None where a call knows of one layer only.
    pub layer: Option<u32>,
    /// Token, counted from the first one of the call.
    pub token: u64,
    /// KV head or query head.
    pub head: u32,
    /// Channel.
    pub channel: u32,
}

/// An error. Nothing is changed by a call that returns one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of error it is.
    pub kind: Kind,
    /// One line for people.
    pub message: String,
    /// Set for `Kind::Value`.
    pub place: Option<Place>,
}

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a place.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), place: None }
    }

    /// An error about one number.
    pub fn at(place: Place, message: impl Into<String>) -> Self {
        Self { kind: Kind::Value, message: message.into(), place: Some(place) }
    }

    /// The same error, its place in this layer.
    pub fn in_layer(mut self, layer: u32) -> Self {
        if let Some(place) = &mut self.place {
            place.layer = Some(layer);
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
