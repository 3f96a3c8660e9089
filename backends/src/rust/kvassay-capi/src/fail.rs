//! Results as codes and a filled `kv_error`, and pointers as slices.

use std::ffi::{CStr, c_char};

use kvassay_core::{Error, Kind, Result};

use crate::abi::{KvError, OK};

/// Functions of the header that can fail: each takes an error to fill last, and its body, which may read and write what
/// the header says of its pointers, gives a `Result<()>`.
macro_rules! exported {
    ($($(#[$about:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) { $($body:tt)* })*) => {$(
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* error: *mut crate::abi::KvError) -> i32 {
            // SAFETY: the caller's pointers, as the header says.
            #[allow(unused_unsafe)] // some have no pointer beside the error
            let run = || unsafe { $($body)* };
            // SAFETY: likewise.
            unsafe { crate::fail::code(error, run()) }
        }
    )*};
}
pub(crate) use exported;

/// The code of a result; `error`, where it is not NULL, says more.
pub unsafe fn code(error: *mut KvError, result: Result<()>) -> i32 {
    let code = result.as_ref().map_or_else(|failure| failure.kind as i32, |()| OK);
    if error.is_null() {
        return code;
    }
    let mut filled = KvError { code, layer: -1, head: -1, channel: -1, token: -1, message: [0; 232] };
    if let Err(failure) = result {
        if let Some(place) = failure.place {
            filled.layer = place.layer.map_or(-1, |layer| layer as i32);
            filled.head = place.head as i32;
            filled.channel = place.channel as i32;
            filled.token = place.token as i64;
        }
        let text = cut(&failure.message, filled.message.len() - 1);
        filled.message[..text.len()].copy_from_slice(text.as_bytes());
    }
    // SAFETY: the caller gives NULL or a kv_error to fill.
    unsafe { error.write(filled) };
    code
}

/// At most n bytes; of a longer message the end is kept too, where the numbers are.
fn cut(message: &str, n: usize) -> String {
    if message.len() <= n {
        return message.to_owned();
    }
    let (mut head, mut tail) = (n / 2, message.len() - (n - n / 2 - 3));
    while !message.is_char_boundary(head) {
        head -= 1;
    }
    while !message.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}...{}", &message[..head], &message[tail..])
}

/// An argument that cannot be right.
pub fn argument(message: impl Into<String>) -> Error {
    Error::new(Kind::Argument, message)
}

/// n entries at a pointer, which may be NULL only where n is 0.
pub unsafe fn slice<'a, T>(name: &str, pointer: *const T, n: u64) -> Result<&'a [T]> {
    let n = check::<T>(name, pointer, n)?;
    // SAFETY: not NULL and aligned; that n entries are there is the caller's part.
    Ok(if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, n) } })
}

/// Likewise, to be written.
pub unsafe fn slice_mut<'a, T>(name: &str, pointer: *mut T, n: u64) -> Result<&'a mut [T]> {
    let n = check::<T>(name, pointer, n)?;
    // SAFETY: as above, and that nobody else uses them is the caller's part too.
    Ok(if n == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(pointer, n) } })
}

fn check<T>(name: &str, pointer: *const T, n: u64) -> Result<usize> {
    let fits = n.checked_mul(size_of::<T>() as u64).is_some_and(|bytes| bytes <= isize::MAX as u64);
    if n > 0 && (pointer.is_null() || !pointer.is_aligned()) {
        return Err(argument(format!("{name}: {pointer:p} is NULL or not aligned")));
    }
    if !fits {
        return Err(argument(format!("{name}: {n} entries cannot be in memory")));
    }
    Ok(n as usize)
}

/// What a pointer points to, or an error that names it.
pub unsafe fn one<'a, T>(name: &str, pointer: *const T) -> Result<&'a T> {
    // SAFETY: as for a slice of one.
    Ok(&unsafe { slice(name, pointer, 1) }?[0])
}

/// Likewise, to be written.
pub unsafe fn one_mut<'a, T>(name: &str, pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as for a slice of one.
    Ok(&mut unsafe { slice_mut(name, pointer, 1) }?[0])
}

/// A C string, or None for NULL.
pub unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL; that it ends is the caller's part.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| argument(format!("{name}: {text:?} is not UTF-8")))
}
