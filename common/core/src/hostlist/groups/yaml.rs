//! Groups in a file: `source: {group: hosts}`, where hosts are a text or a list of texts.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

/// Most text of all groups of a file: what is repeated by `*` must not cost memory.
const MOST: usize = 64 << 20;

/// The groups of a source.
pub(super) type Table = BTreeMap<String, String>;

/// The line, from 1, and what is wrong there.
pub(super) type Wrong = (usize, String);

/// The sources of a file, in their order.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Table)>, Wrong> {
    let events = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut reader = Reader { events, anchors: BTreeMap::new(), room: MOST };
    let mut sources: Vec<(String, Table)> = Vec::new();
    loop {
        let (event, at) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
            Event::MappingStart(..) => break,
            // An empty file.
            Event::StreamEnd => return Ok(sources),
            Event::Scalar(text, ..) if text.is_empty() => return Ok(sources),
            Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingEnd
            | Event::Alias(_)
            | Event::DocumentEnd => return Err(wrong(at, "here stand sources of groups: 'SOURCE:'")),
        }
    }
    while let Some((name, at)) = reader.key()? {
        if sources.iter().any(|(known, _)| *known == name) {
            return Err(wrong(at, &format!("the source '{name}' is there twice")));
        }
        let table = reader.table(&name)?;
        sources.push((name, table));
    }
    reader.end()?;
    Ok(sources)
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// The values of `*NAME`: texts and lists of texts only.
    anchors: BTreeMap<usize, String>,
    room: usize,
}

fn wrong(at: Marker, why: &str) -> Wrong {
    (at.line(), why.to_string())
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Marker), Wrong> {
        match self.events.next_event() {
            Some(Ok((event, Span { start, .. }))) => Ok((event, start)),
            Some(Err(error)) => Err((error.marker().line(), error.info().to_string())),
            None => Ok((Event::StreamEnd, Marker::default())),
        }
    }

    /// The next key of the mapping that is open; `None`: it ends.
    fn key(&mut self) -> Result<Option<(String, Marker)>, Wrong> {
        let (event, at) = self.next()?;
        match event {
            Event::MappingEnd => Ok(None),
            Event::Scalar(name, ..) if name == "<<" => Err(wrong(at, "'<<' is not supported: name the groups again")),
            Event::Scalar(name, ..) if !name.is_empty() => Ok(Some((name.into_owned(), at))),
            Event::Scalar(..)
            | Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..) => Err(wrong(at, "a name is missing here")),
        }
    }

    /// The groups of a source.
    fn table(&mut self, source: &str) -> Result<Table, Wrong> {
        let (event, at) = self.next()?;
        let Event::MappingStart(..) = event else {
            return Err(wrong(at, &format!("the source '{source}' has no groups: 'GROUP: HOSTS'")));
        };
        let mut table = Table::new();
        while let Some((group, at)) = self.key()? {
            let hosts = self.hosts(&group)?;
            if table.insert(group.clone(), hosts).is_some() {
                return Err(wrong(at, &format!("the group '{group}' is there twice")));
            }
        }
        Ok(table)
    }

    /// The hosts of a group.
    fn hosts(&mut self, group: &str) -> Result<String, Wrong> {
        let (event, at) = self.next()?;
        let anchor = match &event {
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) => *anchor,
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => 0,
        };
        let hosts = if let Event::SequenceStart(..) = event {
            let mut parts: Vec<String> = Vec::new();
            loop {
                let (event, at) = self.next()?;
                if event == Event::SequenceEnd {
                    break parts.join(",");
                }
                parts.push(self.text(event, at, group)?);
            }
        } else {
            self.text(event, at, group)?
        };
        if anchor > 0 {
            self.anchors.insert(anchor, hosts.clone());
        }
        Ok(hosts)
    }

    fn text(&mut self, event: Event<'a>, at: Marker, group: &str) -> Result<String, Wrong> {
        let text = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "~" | "null" | "Null" | "NULL");
                let text = if is_null { String::new() } else { text.into_owned() };
                if anchor > 0 {
                    self.anchors.insert(anchor, text.clone());
                }
                Some(text)
            }
            Event::Alias(anchor) => self.anchors.get(&anchor).cloned(),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => None,
        };
        let text = text.ok_or_else(|| wrong(at, &format!("the group '{group}' takes hosts, or a list of hosts")))?;
        self.room = self.room.checked_sub(text.len()).ok_or_else(|| wrong(at, "its groups have more than 64 MiB"))?;
        Ok(text)
    }

    /// Nothing follows.
    fn end(&mut self) -> Result<(), Wrong> {
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(()),
                Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_)
                | Event::StreamStart
                | Event::Scalar(..)
                | Event::Alias(_)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => return Err(wrong(at, "one document only")),
            }
        }
    }
}
