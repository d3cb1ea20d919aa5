//! Memory: what an agent knows and wants to know again.

use kwoon_keys::Commitment;
use kwoon_keys::id::{AgentId, MemoryId};
use kwoon_ledger::action::{self, Body, MemoryUpdate as Update, ObjectId, Text, Version};
use kwoon_ledger::index::{self, List};
use kwoon_ledger::refusal::{Code, Refusal, Stop, require};
use kwoon_ledger::rules::memory::may_update;
use kwoon_ledger::storage::Read;
use kwoon_ledger::visibility::{self, Birth, MemoryView, OwnMemory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Acts, Reads};
use crate::answer::{Answer, ContentKey, Contents, Window};
use crate::argument::{Limit, MaxBytes, MediaTypeText, MemoryRef, NonEmpty, media_type};
use crate::round::{Acting, Plan};
use crate::view::View;

/// Arguments of `memory_create`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryCreate {
    /// The text.
    text: NonEmpty,
    /// The text's media type.
    media_type: Option<MediaTypeText>,
    /// A title.
    title: Option<NonEmpty>,
    /// A summary of the text.
    summary: Option<NonEmpty>,
    /// Tags.
    tags: Option<Vec<NonEmpty>>,
}

impl Acts for MemoryCreate {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let place = acting.host();
        let version = Version {
            text: Text {
                commitment: acting.commit(&place, "text", &self.text.0),
                media_type: media_type(self.media_type),
            },
            title: commit_optional(acting, &place, "title", self.title),
            summary: commit_optional(acting, &place, "summary", self.summary),
            tags: commit_tags(acting, &place, self.tags.unwrap_or_default())?,
        };
        Ok(Plan::new(Body::MemoryCreate(version)))
    }
}

/// Commits to a text that may not be there.
pub fn commit_optional(
    acting: &mut Acting<'_, '_>,
    place: &[u8; 32],
    field: &str,
    text: Option<NonEmpty>,
) -> Option<Commitment> {
    text.map(|text| acting.commit(place, field, &text.0))
}

fn commit_tags(acting: &mut Acting<'_, '_>, place: &[u8; 32], tags: Vec<NonEmpty>) -> Result<Vec<Commitment>, Refusal> {
    let limit = acting.round.limits.tags_max;
    if tags.len() as u64 > limit {
        return Err(Refusal::too_large("tags", limit));
    }
    Ok(tags.iter().enumerate().map(|(at, tag)| acting.commit(place, &format!("tag {at}"), &tag.0)).collect())
}

/// A memory of the acting agent's own.
///
/// # Errors
/// [`Code::NotAuthor`] for another's that can be read, [`Code::NotFound`] for anything else.
fn own(acting: &Acting<'_, '_>, memory: &MemoryRef) -> Result<OwnMemory, Stop> {
    match visibility::memory(acting.read(), &acting.agent, &memory.0)? {
        Some(MemoryView::Own(own)) => Ok(own),
        Some(MemoryView::Public(_)) => Err(Code::NotAuthor.into()),
        None => Err(Code::NotFound.into()),
    }
}

/// A plan on a memory of one's own. If it exists by the outcome of an entry alone, its log begins with this action.
fn on_own(acting: &mut Acting<'_, '_>, own: &OwnMemory, body: Body) -> Result<Plan, Stop> {
    let mut plan = Plan::on(ObjectId::Memory(own.memory.memory), body);
    if let (None, Some(birth)) = (own.number, &own.born) {
        if let Birth::Entry(thread, _) = birth
            && birth.origin(acting.read())?.is_none()
        {
            acting.round.sequencer.seal(*thread)?;
        }
        plan.origin = Some(birth.origin(acting.read())?.ok_or(Code::Internal)?);
    }
    Ok(plan)
}

/// Arguments of `memory_update`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryUpdate {
    /// The memory.
    memory: MemoryRef,
    /// The new text.
    text: NonEmpty,
    /// The version this follows; refused if it is no longer the current one.
    expected_version: Option<u64>,
    /// The text's media type.
    media_type: Option<MediaTypeText>,
    /// A new title.
    title: Option<NonEmpty>,
    /// A summary of the new text.
    summary: Option<NonEmpty>,
    /// New tags, all of them.
    tags: Option<Vec<NonEmpty>>,
}

impl Acts for MemoryUpdate {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let own = own(acting, &self.memory)?;
        // What the memory has come to is before how much is said of it.
        may_update(&own.memory, self.expected_version)?;
        let place = *own.memory.memory.as_bytes();
        let current = own.version(acting.read(), own.memory.version)?.ok_or(Code::Internal)?;
        let version = Version {
            text: Text {
                commitment: acting.commit(&place, "text", &self.text.0),
                media_type: media_type(self.media_type),
            },
            title: commit_optional(acting, &place, "title", self.title).or(current.title),
            summary: commit_optional(acting, &place, "summary", self.summary),
            tags: match self.tags {
                Some(tags) => commit_tags(acting, &place, tags)?,
                None => current.tags,
            },
        };
        let update = Update { version, expected_version: self.expected_version };
        on_own(acting, &own, Body::MemoryUpdate(update))
    }
}

macro_rules! on_memory {
    ($($(#[$doc:meta])* $name:ident: $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// The memory.
            memory: MemoryRef,
        }

        impl Acts for $name {
            fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
                let own = own(acting, &self.memory)?;
                on_own(acting, &own, $body)
            }
        }
    )*};
}

on_memory! {
    /// Arguments of `memory_publish`.
    MemoryPublish: Body::MemoryPublish;
    /// Arguments of `memory_unpublish`.
    MemoryUnpublish: Body::MemoryUnpublish;
    /// Arguments of `memory_withdraw`.
    MemoryWithdraw: Body::MemoryWithdraw;
}

/// A version of a memory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct VersionRef {
    /// The memory.
    memory: MemoryRef,
    /// Its version; the current one if left out.
    version: Option<u64>,
}

/// A pinned version of a memory, as an argument.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a memory id, or {memory, version}")]
#[schemars(inline)]
pub enum PinRef {
    /// Its current version.
    Current(MemoryRef),
    /// This version.
    Version(VersionRef),
}

impl PinRef {
    fn parts(&self) -> (&MemoryRef, Option<u64>) {
        match self {
            Self::Current(memory) => (memory, None),
            Self::Version(VersionRef { memory, version }) => (memory, *version),
        }
    }

    /// The pinned version of a valid memory of the agent's own (M8).
    ///
    /// # Errors
    /// [`Code::NotFound`], also for what is another's; [`Code::MemoryWithdrawn`].
    pub fn own(&self, acting: &Acting<'_, '_>) -> Result<action::Pin, Stop> {
        let (memory, version) = self.parts();
        match visibility::memory(acting.read(), &acting.agent, &memory.0)? {
            Some(MemoryView::Own(own)) => pin_own(acting, &own, version),
            _ => Err(Code::NotFound.into()),
        }
    }
}

/// Pins a version of an own valid memory.
///
/// # Errors
/// [`Code::MemoryWithdrawn`], or [`Code::NotFound`] if there is no such version.
pub fn pin_own(acting: &Acting<'_, '_>, own: &OwnMemory, version: Option<u64>) -> Result<action::Pin, Stop> {
    require(!own.memory.withdrawn, Code::MemoryWithdrawn)?;
    let number = version.unwrap_or(own.memory.version);
    let version = own.version(acting.read(), number)?.ok_or(Code::NotFound)?;
    let blind = own.blind(acting.read())?;
    Ok(action::Pin { memory: own.memory.memory, version: number, text: version.text, author: own.memory.author, blind })
}

/// Arguments of `memory_get`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryGet {
    /// The memory.
    memory: MemoryRef,
    /// The version; the current one if left out.
    version: Option<u64>,
    /// Bytes of the text.
    max_bytes: Option<MaxBytes>,
    /// Where in the text to begin.
    offset: Option<usize>,
}

/// A memory.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MemoryShown {
    /// Its id.
    pub memory: String,
    /// `valid` or `withdrawn`.
    pub state: &'static str,
    /// `private` or `public`.
    pub visibility: &'static str,
    /// The version shown.
    pub version: u64,
    /// The current version.
    pub current_version: u64,
    /// Who wrote it.
    pub author: String,
    /// The title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title_content: Option<ContentKey>,
    /// The summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_content: Option<ContentKey>,
    /// Tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags_content: Vec<ContentKey>,
    /// The text; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_content: Option<ContentKey>,
}

/// What one reader may know of a memory, at one version.
struct Known {
    memory: MemoryId,
    author: AgentId,
    state: &'static str,
    visibility: &'static str,
    current: u64,
    number: u64,
    version: Version,
}

impl Known {
    /// # Errors
    /// [`Code::NotFound`] if there is no such version; [`Code::MemoryUnreadable`] for an earlier one of another's.
    fn of(read: &dyn Read, view: &MemoryView, asked: Option<u64>) -> Result<Self, Stop> {
        match view {
            MemoryView::Own(own) => {
                let number = asked.unwrap_or(own.memory.version);
                Ok(Self {
                    memory: own.memory.memory,
                    author: own.memory.author,
                    state: if own.memory.withdrawn { "withdrawn" } else { "valid" },
                    visibility: if own.memory.public { "public" } else { "private" },
                    current: own.memory.version,
                    number,
                    version: own.version(read, number)?.ok_or(Code::NotFound)?,
                })
            }
            MemoryView::Public(publication) => {
                let (current, version) = publication.current.clone().ok_or(Code::NotFound)?;
                let number = asked.unwrap_or(current);
                require(number <= current && number > 0, Code::NotFound)?;
                require(number == current, Code::MemoryUnreadable)?;
                Ok(Self {
                    memory: publication.memory,
                    author: publication.author,
                    state: "valid",
                    visibility: "public",
                    current,
                    number,
                    version,
                })
            }
        }
    }

    fn shown(&self, contents: &mut Contents<'_>, text: Option<Window>) -> Result<MemoryShown, Stop> {
        let author = Some(&self.author);
        let line = Window::DEFAULT;
        let mut tags_content = Vec::new();
        for tag in &self.version.tags {
            tags_content.push(contents.plain(author, "tag", tag, line)?);
        }
        Ok(MemoryShown {
            memory: self.memory.to_string(),
            state: self.state,
            visibility: self.visibility,
            version: self.number,
            current_version: self.current,
            author: self.author.to_string(),
            title_content: contents.optional(author, "title", self.version.title.as_ref(), line)?,
            summary_content: contents.optional(author, "summary", self.version.summary.as_ref(), line)?,
            tags_content,
            text_content: match text {
                Some(window) => Some(contents.text(author, "text", &self.version.text, true, window)?),
                None => None,
            },
        })
    }
}

/// A memory as a reader may see it, with its text.
///
/// # Errors
/// [`Code::NotFound`] for whatever may not be read.
pub fn shown(
    view: &View<'_>,
    contents: &mut Contents<'_>,
    memory: &MemoryRef,
    version: Option<u64>,
    window: Window,
) -> Result<(MemoryShown, Option<u32>), Stop> {
    let found = visibility::memory(view.read, &view.reader()?, &memory.0)?.ok_or(Code::NotFound)?;
    let number = match &found {
        MemoryView::Own(own) => own.number,
        MemoryView::Public(publication) => {
            let id = kwoon_ledger::rules::memory::publication_id(&publication.memory);
            index::number(view.read, &ObjectId::Publication(id))?
        }
    };
    let known = Known::of(view.read, &found, version)?;
    Ok((known.shown(contents, Some(window))?, number))
}

impl Reads for MemoryGet {
    type Result = MemoryShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let mut contents = Contents::new(view.read);
        let window = Window { offset: self.offset.unwrap_or(0), max_bytes: MaxBytes::of(self.max_bytes) };
        let (shown, number) = shown(view, &mut contents, &self.memory, self.version, window)?;
        Ok(view.answer(&shown, contents, number)?)
    }
}

/// Arguments of `memory_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryList {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// Memories.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Memories {
    /// In the order in which they came to be, or of search.
    memories: Vec<MemoryShown>,
}

impl Reads for MemoryList {
    type Result = Memories;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let owner = index::owner(&reader);
        let limit = Limit::of(self.limit);
        let (ids, cursor) = view.page::<MemoryId>(List::Memories, &owner, self.cursor.as_deref(), limit)?;
        let mut contents = Contents::new(view.read);
        let mut memories = Vec::new();
        for id in ids {
            let Some(found) = visibility::memory(view.read, &reader, &id.0.short())? else { continue };
            memories.push(Known::of(view.read, &found, None)?.shown(&mut contents, None)?);
        }
        let mut answer = view.answer(&Memories { memories }, contents, None)?;
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// Memories that a search looks at, of one's own and of the public's each.
const SEARCHED_MAX: usize = 500;
/// Bytes of each text that a search looks at.
const SEARCHED_BYTES: usize = 64 << 10;

/// Arguments of `memory_search`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemorySearch {
    /// What to look for in titles, summaries, tags and the first 64 KiB of texts.
    query: NonEmpty,
    /// Results at most.
    limit: Option<Limit>,
}

impl Reads for MemorySearch {
    type Result = Memories;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let query = self.query.0.to_lowercase();
        if query.len() > 1024 {
            return Err(Refusal::too_large("query", 1024).into());
        }
        let mut ids = index::list_latest::<MemoryId>(view.read, List::Memories, &index::owner(&reader), SEARCHED_MAX)?;
        for id in index::public_memories(view.read, SEARCHED_MAX)? {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let mut contents = Contents::new(view.read);
        let mut memories = Vec::new();
        for id in ids {
            let Some(found) = visibility::memory(view.read, &reader, &id.0.short())? else { continue };
            let known = Known::of(view.read, &found, None)?;
            if matches(view.read, &known.version, &query)? {
                memories.push(known.shown(&mut contents, None)?);
            }
            if memories.len() == Limit::of(self.limit) {
                break;
            }
        }
        Ok(view.answer(&Memories { memories }, contents, None)?)
    }
}

fn matches(read: &dyn Read, version: &Version, query: &str) -> Result<bool, Stop> {
    let texts = version.title.iter().chain(&version.summary).chain(&version.tags);
    for commitment in texts.chain([&version.text.commitment]) {
        if let Some((_, bytes)) = read.content(&commitment.hash)? {
            let part = &bytes[..bytes.len().min(SEARCHED_BYTES)];
            if String::from_utf8_lossy(part).to_lowercase().contains(query) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
