//! Memories: versions that never change, private or public, valid or withdrawn (M1 to M8).

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{Code, Done, Milliseconds, Model, content, handle, plain, put};

/// A memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Who wrote it.
    pub author: usize,
    /// Its versions, the first one first.
    pub versions: Vec<Version>,
    /// Whether anybody can read its current version while it is valid.
    pub public: bool,
    /// Whether it has ended.
    pub withdrawn: bool,
    /// When it came to be.
    pub created_at: Milliseconds,
    /// The latest time of its own log, which begins later for one that an entry brought forth.
    pub clock: Milliseconds,
}

/// A version of a memory.
#[derive(Clone, Debug)]
pub struct Version {
    /// The text.
    pub text: String,
    /// Its media type.
    pub media_type: String,
    /// The title.
    pub title: Option<String>,
    /// The summary of this text.
    pub summary: Option<String>,
    /// Tags.
    pub tags: Vec<String>,
}

/// A version of a memory that is referred to.
#[derive(Clone, Copy, Debug)]
pub struct Pin {
    /// The memory.
    pub memory: usize,
    /// The version's number, from 1.
    pub version: usize,
}

impl Memory {
    /// Whether anybody can read its current version.
    pub fn is_shown(&self) -> bool {
        self.public && !self.withdrawn
    }
}

/// The tags of a call.
fn tags(given: Arguments<'_>) -> Option<Vec<String>> {
    given.list("tags").map(|tags| tags.iter().map(|tag| tag.as_str().expect("a tag").to_owned()).collect())
}

/// The media type of a call.
pub fn media_type(given: Arguments<'_>) -> String {
    given.own_text("media_type").unwrap_or_else(|| "text/markdown".to_owned())
}

impl Model {
    pub(super) fn memory_create(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let version = Version {
            text: given.own_text("text").expect("a text"),
            media_type: media_type(given),
            title: given.own_text("title"),
            summary: given.own_text("summary"),
            tags: tags(given).unwrap_or_default(),
        };
        self.version_fits(&version)?;
        self.memories.push(Memory {
            author: me,
            versions: vec![version],
            public: false,
            withdrawn: false,
            created_at: self.at,
            clock: self.at,
        });
        let id = handle("mem", self.memories.len() - 1);
        let effects = vec![
            json!({"kind": "memory_created", "memory": id, "author": handle("agt", me)}),
            json!({"kind": "version_added", "memory": id, "version": 1}),
        ];
        Ok(Done::new(id.clone(), json!({"memory": id, "version": 1}), effects))
    }

    pub(super) fn memory_update(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let memory = self.own_valid_memory(me, given)?;
        let current = self.memories[memory].versions.last().expect("a version").clone();
        let count = self.memories[memory].versions.len();
        if given.number("expected_version").is_some_and(|expected| expected != count as u64) {
            return Err("version_conflict");
        }
        // Title and tags stay; the summary belongs to one text.
        let version = Version {
            text: given.own_text("text").expect("a text"),
            media_type: media_type(given),
            title: given.own_text("title").or(current.title),
            summary: given.own_text("summary"),
            tags: tags(given).unwrap_or(current.tags),
        };
        self.version_fits(&version)?;
        self.memories[memory].versions.push(version);
        let (id, number) = (handle("mem", memory), count + 1);
        let effect = json!({"kind": "version_added", "memory": id, "version": number});
        Ok(Done::new(id.clone(), json!({"memory": id, "version": number}), vec![effect]))
    }

    pub(super) fn memory_publish(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let memory = self.own_valid_memory(me, given)?;
        if self.memories[memory].public {
            return Err("no_change");
        }
        self.memories[memory].public = true;
        let (id, version) = (handle("mem", memory), self.memories[memory].versions.len());
        let effect = json!({"kind": "made_public", "memory": id, "version": version});
        Ok(Done::new(id.clone(), json!({"memory": id}), vec![effect]))
    }

    pub(super) fn memory_unpublish(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let memory = self.own_valid_memory(me, given)?;
        if !self.memories[memory].public {
            return Err("no_change");
        }
        self.memories[memory].public = false;
        let id = handle("mem", memory);
        Ok(Done::new(id.clone(), json!({"memory": id}), vec![json!({"kind": "made_private", "memory": id})]))
    }

    pub(super) fn memory_withdraw(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let memory = self.own_valid_memory(me, given)?;
        (self.memories[memory].withdrawn, self.memories[memory].public) = (true, false);
        let id = handle("mem", memory);
        Ok(Done::new(id.clone(), json!({"memory": id}), vec![json!({"kind": "memory_withdrawn", "memory": id})]))
    }

    /// The memory that its author wants to change (M2, M5).
    fn own_valid_memory(&self, me: usize, given: Arguments<'_>) -> Result<usize, Code> {
        let memory = self.known_memory(given)?;
        match &self.memories[memory] {
            found if found.author != me && found.is_shown() => Err("not_author"),
            found if found.author != me => Err("not_found"),
            found if found.withdrawn => Err("memory_withdrawn"),
            _ => Ok(memory),
        }
    }

    fn known_memory(&self, given: Arguments<'_>) -> Result<usize, Code> {
        given.place("memory", "mem").filter(|memory| *memory < self.memories.len()).ok_or("not_found")
    }

    fn version_fits(&self, version: &Version) -> Result<(), Code> {
        if version.tags.len() as u64 > self.limits.tags_max {
            return Err("content_too_large");
        }
        self.fits(Some(&version.text), self.limits.text_bytes_max)?;
        self.fits(version.summary.as_deref(), self.limits.summary_bytes_max)?;
        self.fits_line(version.title.as_deref())?;
        version.tags.iter().try_for_each(|tag| self.fits_line(Some(tag)))
    }

    /// A new reference to a memory (M8): to any version of a valid one of one's own, or, if `others` may be referred to,
    /// to the current version of another's public one.
    pub(super) fn pin(&self, me: usize, memory: &Value, version: Option<u64>, others: bool) -> Result<Pin, Code> {
        let memory = super::place("mem", memory.as_str().expect("a memory")).ok_or("not_found")?;
        let found = self.memories.get(memory).ok_or("not_found")?;
        let (own, current) = (found.author == me, found.versions.len());
        let version = version.map_or(current, |version| version as usize);
        match found {
            found if !own && (!others || !found.is_shown()) => Err("not_found"),
            found if found.withdrawn => Err("memory_withdrawn"),
            _ if version == 0 || version > current => Err("not_found"),
            _ if !own && version < current => Err("memory_unreadable"),
            _ => Ok(Pin { memory, version }),
        }
    }

    /// The text of a pinned version.
    pub(super) fn pinned(&self, pin: Pin) -> Value {
        let memory = &self.memories[pin.memory];
        let version = &memory.versions[pin.version - 1];
        content(Some(memory.author), "text", &version.media_type, &version.text)
    }

    /// What a reader finds of a memory (V1).
    pub(super) fn memory_get(&self, reader: usize, given: Arguments<'_>) -> Result<Value, Code> {
        let number = self.known_memory(given)?;
        let memory = &self.memories[number];
        let (own, current) = (memory.author == reader, memory.versions.len());
        if !own && !memory.is_shown() {
            return Err("not_found");
        }
        let version = given.number("version").map_or(current, |version| version as usize);
        if version == 0 || version > current {
            return Err("not_found");
        }
        if !own && version < current {
            return Err("memory_unreadable");
        }
        let mut shown = self.memory_row(number, version);
        shown["text_content"] = self.pinned(Pin { memory: number, version });
        Ok(shown)
    }

    fn memory_row(&self, number: usize, version: usize) -> Value {
        let Memory { author, versions, public, withdrawn, .. } = &self.memories[number];
        let found = &versions[version - 1];
        let mut row = json!({
            "memory": handle("mem", number),
            "state": if *withdrawn { "withdrawn" } else { "valid" },
            "visibility": if *public { "public" } else { "private" },
            "version": version,
            "current_version": versions.len(),
            "author": handle("agt", *author),
        });
        put(&mut row, "title_content", found.title.as_deref().map(|text| plain(*author, "title", text)));
        put(&mut row, "summary_content", found.summary.as_deref().map(|text| plain(*author, "summary", text)));
        let tags: Vec<Value> = found.tags.iter().map(|tag| plain(*author, "tag", tag)).collect();
        put(&mut row, "tags_content", (!tags.is_empty()).then_some(json!(tags)));
        row
    }

    /// An agent's own valid memories, as they came to be.
    pub(super) fn memory_list(&self, reader: usize) -> Vec<Value> {
        let own = |memory: &Memory| memory.author == reader && !memory.withdrawn;
        let mut numbers: Vec<usize> = (0..self.memories.len()).filter(|number| own(&self.memories[*number])).collect();
        numbers.sort_by_key(|number| self.memories[*number].created_at);
        numbers.into_iter().map(|number| self.memory_row(number, self.memories[number].versions.len())).collect()
    }

    /// The memories in whose current text, title, summary or tags something occurs, of one's own and of the public's.
    pub(super) fn memory_search(&self, reader: usize, query: &str) -> Vec<Value> {
        let readable = |memory: &Memory| !memory.withdrawn && (memory.author == reader || memory.public);
        let holds = |memory: &Memory| {
            let version = memory.versions.last().expect("a version");
            let lines = version.tags.iter().chain(&version.title).chain(&version.summary);
            lines.chain([&version.text]).any(|line| line.contains(query))
        };
        let numbers = (0..self.memories.len()).filter(|number| {
            let memory = &self.memories[*number];
            readable(memory) && holds(memory)
        });
        numbers.map(|number| self.memory_row(number, self.memories[number].versions.len())).collect()
    }
}
