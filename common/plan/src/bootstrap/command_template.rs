//! `--launcher exec:TEMPLATE`: a command of the user's that reaches a host, as `docker exec -i {host}` or `kubectl exec -i {host} --`.
//! It runs a shell there with the line that starts the agent, and passes its standard input and output on byte for byte.

use super::argv::Target;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use rlaunch_base::error::Hint;
use rlaunch_base::os_bytes::OsBytes;

const HOST: &str = "{host}";

/// The words of the command; `{host}` in a word is the name of the host. No shell reads them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandTemplate(Vec<String>);

/// A template that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template has no word, or is no UTF-8.
    #[error("there is no command in it")]
    Empty,
    /// No word holds `{{host}}`.
    #[error("no word of it has {{host}}, so all hosts would be the same one")]
    NoHost,
}

impl Hint for TemplateError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("exec:'kubectl exec -i {host} --'".into())
    }
}

impl CommandTemplate {
    /// Reads the text after `exec:`: words between blanks.
    ///
    /// # Errors
    /// There is no word, or none with `{host}`.
    pub fn parse(text: &[u8]) -> Result<Self, TemplateError> {
        let text = core::str::from_utf8(text).map_err(|_| TemplateError::Empty)?;
        let words: Vec<String> = text.split_ascii_whitespace().map(String::from).collect();
        if words.is_empty() {
            return Err(TemplateError::Empty);
        }
        if !words.iter().any(|word| word.contains(HOST)) {
            return Err(TemplateError::NoHost);
        }
        Ok(Self(words))
    }

    /// The command for a host, with a shell that runs the line.
    #[must_use]
    pub fn argv(&self, target: &Target, line: &[u8]) -> Vec<OsBytes> {
        let host = format!("{}", target.host());
        let mut words: Vec<OsBytes> = self.0.iter().map(|word| OsBytes::from(word.replace(HOST, &host))).collect();
        words.extend(["/bin/sh", "-c"].map(OsBytes::from));
        words.push(OsBytes::from(line));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn the_host_stands_where_the_template_says() {
        let template = CommandTemplate::parse(b"  kubectl exec  -i pod-{host}.{host} -- ").unwrap();
        let words = template.argv(&Target::parse(b"w0", None).unwrap(), b"a b");
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        assert_eq!(words, ["kubectl", "exec", "-i", "pod-w0.w0", "--", "/bin/sh", "-c", "a b"]);
    }

    #[test]
    fn a_template_without_a_command_or_a_host_is_refused() {
        for (text, error) in
            [("", TemplateError::Empty), ("  ", TemplateError::Empty), ("kubectl exec host", TemplateError::NoHost)]
        {
            assert_eq!(CommandTemplate::parse(text.as_bytes()), Err(error));
            assert!(error.hint().is_some());
        }
    }
}
