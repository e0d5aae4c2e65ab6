//! Numbers and names in buffers that were there before: for code that must not allocate.

/// A fixed buffer for a path or a line. Longer text is cut.
pub(crate) struct Buf<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Buf<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(crate) fn text(mut self, text: &[u8]) -> Self {
        for b in text {
            if self.len + 1 < N {
                self.bytes[self.len] = *b;
                self.len += 1;
            }
        }
        self
    }

    pub(crate) fn number(self, mut n: u32) -> Self {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(n % 10).unwrap_or(0);
            n /= 10;
            if n == 0 {
                break;
            }
        }
        self.text(&digits[at..])
    }

    /// The contents.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The NUL-terminated contents.
    pub(crate) fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_numbers() {
        let b = Buf::<32>::new().text(b"/proc/").number(40_917).text(b"/comm");
        assert_eq!(b.as_bytes(), b"/proc/40917/comm");
        assert_eq!(b.bytes[b.len], 0);
    }

    #[test]
    fn cuts_what_does_not_fit() {
        let b = Buf::<4>::new().text(b"abcdef").number(0);
        assert_eq!(&b.bytes, b"abc\0");
    }
}
