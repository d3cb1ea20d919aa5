//! Bearer tokens, one file each.

use std::io;
use std::path::{Path, PathBuf};

use kwoon_keys::files::{self as key_files, FileError, FileLayer};
use kwoon_keys::id::BASE32;
use zeroize::Zeroizing;

use super::{Home, TOKENS};
use crate::error::TokenError;
use crate::files;

const PREFIX: &str = "kwn_";

impl Home {
    /// The directory of the token files, each named by whom the token speaks for.
    pub fn tokens_dir(&self) -> PathBuf {
        self.path.join(TOKENS)
    }

    /// The token in the file of this name, without the newline; a new random one, durable, if there is no such file.
    ///
    /// # Errors
    /// If the name is not one a token may have, or the file is looser than 0600 or holds something else.
    pub fn ensure_token(&self, name: &str) -> Result<Zeroizing<String>, TokenError> {
        if !is_token_name(name) {
            return Err(TokenError::Name);
        }
        let path = self.tokens_dir().join(name);
        match key_files::read_private(&path) {
            Ok(bytes) => read_token(&bytes).ok_or(TokenError::NotAToken { path }),
            Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => self.make_token(name),
            Err(error) => Err(error.into()),
        }
    }

    fn make_token(&self, name: &str) -> Result<Zeroizing<String>, TokenError> {
        let dir = self.tokens_dir();
        let path = dir.join(name);
        let io_error = |source| TokenError::File(FileError::Io { path: path.clone(), source });
        files::make_durable_dir(&*self.layer, &dir).map_err(io_error)?;
        let random = key_files::random().map_err(io_error)?;
        let mut token = Zeroizing::new(String::with_capacity(64));
        token.push_str(PREFIX);
        BASE32.encode_append(random.as_ref(), &mut token);
        token.push('\n');
        key_files::replace(&*self.layer, &temporary(&dir, name), &path, token.as_bytes()).map_err(io_error)?;
        self.layer.sync_dir(&dir).map_err(io_error)?;
        token.pop();
        Ok(token)
    }
}

/// Where a token is written before it is renamed. The dot keeps it apart from the tokens: `x.new` may be an agent.
fn temporary(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.new"))
}

/// Makes durable what is there. A process may have been killed between giving a token its name and the sync; read back, it
/// would be given out and could be lost after.
pub(crate) fn settle(layer: &dyn FileLayer, home: &Path) -> io::Result<()> {
    match layer.sync_dir(&home.join(TOKENS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced,
    }
}

pub(super) fn remove_leftovers(layer: &dyn FileLayer, dir: &Path) -> io::Result<()> {
    for name in files::names(dir)? {
        let token = name.strip_prefix('.').and_then(|rest| rest.strip_suffix(".new"));
        if token.is_some_and(is_token_name) {
            layer.remove(&dir.join(name))?;
        }
    }
    Ok(())
}

/// The grammar of an agent's name on its host.
fn is_token_name(name: &str) -> bool {
    let first = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(first)
        && bytes.iter().all(|c| first(c) || matches!(c, b'.' | b'_' | b'-'))
}

/// A token from the content of its file: the prefix and 32 bytes in base32, with or without one newline after it.
pub fn read_token(bytes: &[u8]) -> Option<Zeroizing<String>> {
    let text = std::str::from_utf8(bytes.strip_suffix(b"\n").unwrap_or(bytes)).ok()?;
    let random = Zeroizing::new(BASE32.decode(text.strip_prefix(PREFIX)?.as_bytes()).ok()?);
    (random.len() == 32).then(|| Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../x", "a/b", ".a", "-a", "A", "ä", &"a".repeat(64)] {
            assert!(!is_token_name(name), "{name}");
        }
        for name in ["owner", "a", "0", "a.new", "a-b_c.d", &"a".repeat(63)] {
            assert!(is_token_name(name), "{name}");
        }
    }
}
