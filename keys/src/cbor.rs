//! Deterministic CBOR (RFC 8949, 4.2.1) for records.
//!
//! Records are maps with small integer keys. There are two ways to read one: [`read_strict`] takes only what this
//! version of kwoon would have written, byte for byte, so unknown fields are refused; [`read_lenient`] takes any
//! deterministic encoding and passes over fields it does not know, as a replica must (CO.2).

use alloc::vec::Vec;

use minicbor::data::Type;
use minicbor::decode::Error as DecodeError;
use minicbor::{Decode, Decoder, Encode};

/// Nesting that a record may have. Deeper input is refused before it is decoded.
pub const DEPTH_MAX: usize = 24;

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CborError {
    /// Not CBOR, cut short, or followed by further bytes.
    #[error("the bytes are not one CBOR item")]
    Malformed,
    /// CBOR, but not in deterministic encoding, or of a kind that records never use (floats, tags, indefinite lengths).
    #[error("the encoding is not deterministic")]
    NotDeterministic,
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("the nesting is too deep")]
    TooDeep,
    /// Well formed, but not of the expected kind, or of a kind this version does not know.
    #[error("the record is of an unknown kind or lacks a field")]
    Unknown,
    /// Of the expected kind, but with fields this version does not know.
    #[error("the record has unknown fields")]
    UnknownFields,
}

/// Encodes a value. The derived encoders write map keys in rising order and every integer in its shortest form.
pub fn write<T: Encode<()>>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    minicbor::encode(value, &mut bytes).expect("writing to a vector cannot fail");
    bytes
}

/// Decodes a value that this version wrote, or could have written.
///
/// # Errors
/// Anything that does not encode to the same bytes again, unknown fields included.
pub fn read_strict<'b, T: Decode<'b, ()> + Encode<()>>(bytes: &'b [u8]) -> Result<T, CborError> {
    let value = read_lenient(bytes)?;
    if write(&value) == bytes { Ok(value) } else { Err(CborError::UnknownFields) }
}

/// Decodes a value that a later version may have written: deterministic, with fields that may be unknown here.
///
/// # Errors
/// What is not deterministic CBOR, or lacks what this version needs to know.
pub fn read_lenient<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, CborError> {
    check_deterministic(bytes)?;
    minicbor::decode(bytes).map_err(|_| CborError::Unknown)
}

/// Decodes an optional field of whose variants this version may not know all. The derived decoder would take a field
/// with an unknown variant for absent, and read on from the middle of it; here the record is refused instead (EV.3).
///
/// # Errors
/// What the field's own decoder does not accept.
pub fn known<'b, C, T: Decode<'b, C>>(d: &mut Decoder<'b>, context: &mut C) -> Result<Option<T>, DecodeError> {
    Option::<T>::decode(d, context).map_err(|error| match error.position() {
        Some(at) if error.is_unknown_variant() => DecodeError::message("an unknown variant").at(at),
        _ if error.is_unknown_variant() => DecodeError::message("an unknown variant"),
        _ => error,
    })
}

/// Decodes what this host wrote itself and keeps in its own store. No check but that it decodes.
///
/// # Errors
/// When the bytes are not such a value, which means that the store is damaged.
pub fn read_own<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T, CborError> {
    minicbor::decode(bytes).map_err(|_| CborError::Malformed)
}

/// Checks that `bytes` are exactly one item in deterministic encoding, without floats and tags.
///
/// # Errors
/// See [`CborError`].
pub fn check_deterministic(bytes: &[u8]) -> Result<(), CborError> {
    let mut decoder = Decoder::new(bytes);
    check_item(&mut decoder, bytes, DEPTH_MAX)?;
    if decoder.position() == bytes.len() { Ok(()) } else { Err(CborError::Malformed) }
}

fn check_item(d: &mut Decoder<'_>, bytes: &[u8], depth: usize) -> Result<(), CborError> {
    let Some(depth) = depth.checked_sub(1) else { return Err(CborError::TooDeep) };
    check_head(&bytes[d.position()..])?;
    let malformed = |_| CborError::Malformed;
    match d.datatype().map_err(malformed)? {
        Type::Array => {
            let length = d.array().map_err(malformed)?.ok_or(CborError::NotDeterministic)?;
            for _ in 0..length {
                check_item(d, bytes, depth)?;
            }
        }
        Type::Map => {
            let length = d.map().map_err(malformed)?.ok_or(CborError::NotDeterministic)?;
            let mut last: Option<&[u8]> = None;
            for _ in 0..length {
                let start = d.position();
                check_item(d, bytes, depth)?;
                let key = &bytes[start..d.position()];
                if last.is_some_and(|last| last >= key) {
                    return Err(CborError::NotDeterministic);
                }
                last = Some(key);
                check_item(d, bytes, depth)?;
            }
        }
        Type::Tag
        | Type::F16
        | Type::F32
        | Type::F64
        | Type::Undefined
        | Type::Simple
        | Type::BytesIndef
        | Type::StringIndef
        | Type::ArrayIndef
        | Type::MapIndef
        | Type::Break => return Err(CborError::NotDeterministic),
        _ => d.skip().map_err(malformed)?,
    }
    Ok(())
}

/// The argument of the item at the start of `bytes` must be in its shortest form.
fn check_head(bytes: &[u8]) -> Result<(), CborError> {
    let (&first, rest) = bytes.split_first().ok_or(CborError::Malformed)?;
    let least: u64 = match first & 0x1f {
        24 => 24,
        25 => 1 << 8,
        26 => 1 << 16,
        27 => 1 << 32,
        _ => return Ok(()),
    };
    let width = 1 << ((first & 0x1f) - 24);
    let argument = rest.get(..width).ok_or(CborError::Malformed)?;
    let value = argument.iter().fold(0u64, |value, &byte| (value << 8) | u64::from(byte));
    if value < least { Err(CborError::NotDeterministic) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[derive(Debug, PartialEq, Encode, Decode)]
    #[cbor(map)]
    struct Old {
        #[n(0)]
        a: u64,
        #[n(1)]
        b: Option<String>,
    }

    #[derive(Encode, Decode)]
    #[cbor(map)]
    struct New {
        #[n(0)]
        a: u64,
        #[n(2)]
        c: u64,
    }

    #[test]
    fn unknown_fields_are_refused_strictly_and_passed_over_leniently() {
        let bytes = write(&New { a: 1, c: 7 });
        assert_eq!(read_lenient::<Old>(&bytes), Ok(Old { a: 1, b: None }));
        assert_eq!(read_strict::<Old>(&bytes), Err(CborError::UnknownFields));
    }

    #[test]
    fn other_encodings_of_the_same_value_are_refused() {
        let cases: &[(&[u8], CborError)] = &[
            (&[0xa1, 0x00, 0x18, 0x01], CborError::NotDeterministic), // 1 in two bytes
            (&[0xbf, 0x00, 0x01, 0xff], CborError::NotDeterministic), // indefinite map
            (&[0xa2, 0x01, 0x61, 0x61, 0x00, 0x01], CborError::NotDeterministic), // keys not in order
            (&[0xa2, 0x00, 0x01, 0x00, 0x01], CborError::NotDeterministic), // a key twice
            (&[0xa1, 0x00, 0xf9, 0x3c, 0x00], CborError::NotDeterministic), // a float
            (&[0xa1, 0x00, 0xc1, 0x01], CborError::NotDeterministic), // a tag
            (&[0xa1, 0x00, 0x01, 0x00], CborError::Malformed),        // trailing byte
            (&[0xa1, 0x00], CborError::Malformed),                    // cut short
            (&[0xa1, 0x00, 0x62, 0xc3, 0x28], CborError::Malformed),  // not UTF-8
            (&[], CborError::Malformed),
            (&[0x01], CborError::Unknown), // not a map
        ];
        for (bytes, error) in cases {
            let got = read_strict::<Old>(bytes).expect_err("must be refused");
            assert!(got == *error || got == CborError::Unknown, "{bytes:02x?}: {got:?}");
        }
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion() {
        let mut bytes = alloc::vec![0x81; 100_000];
        bytes.push(0x00);
        assert_eq!(check_deterministic(&bytes), Err(CborError::TooDeep));
    }
}
