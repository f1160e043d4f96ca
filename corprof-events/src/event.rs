//! One event, decoded as far as it is asked for.

use crate::cursor::Cursor;
use crate::description::{Description, FieldList};
use crate::manifest;
use crate::manifest_event::ManifestEvent;
use crate::provider::Provider;
use crate::scalar::Widths;
use crate::text::Text;
use crate::types::Definitions;
use crate::value::{Fields, Record, Value};

/// An event: its provider, its number and its payload. It is decoded on request only.
///
/// ```
/// use corprof_events::views::GcStart;
/// use corprof_events::{Event, GcReason, Provider};
///
/// let payload = [3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// let event = Event::new(Provider::RUNTIME, 1, 2, &payload, true);
/// assert_eq!(event.name(), "GCStart");
/// assert_eq!(event.field("Depth").and_then(|depth| depth.as_u64()), Some(2));
/// let start: GcStart = event.decode()?;
/// assert_eq!((start.number, start.generation, start.reason), (3, 2, GcReason::INDUCED));
/// # Ok::<(), corprof_events::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    provider: Provider<'a>,
    id: u32,
    version: u32,
    payload: &'a [u8],
    is_64_bit: bool,
    name: Text<'a>,
    fields: Option<FieldList<'a>>,
}

impl<'a> Event<'a> {
    /// An event of the runtime, or one that is not described. `is_64_bit` says how wide addresses are in the process
    /// that wrote it.
    #[must_use]
    pub fn new(provider: Provider<'a>, id: u32, version: u32, payload: &'a [u8], is_64_bit: bool) -> Self {
        Self { provider, id, version, payload, is_64_bit, name: Text::utf8(b""), fields: None }
    }

    /// An event that describes itself.
    #[must_use]
    pub fn described(
        provider: Provider<'a>,
        description: &Description<'a>,
        payload: &'a [u8],
        is_64_bit: bool,
    ) -> Self {
        let event = Self::new(provider, description.id(), description.version(), payload, is_64_bit);
        Self { name: description.name(), fields: description.fields(), ..event }
    }

    /// With this name and these fields of a trace.
    #[must_use]
    pub fn with_description(self, name: impl Into<Text<'a>>, fields: Option<FieldList<'a>>) -> Self {
        Self { name: name.into(), fields, ..self }
    }

    /// Its provider.
    #[must_use]
    pub fn provider(&self) -> Provider<'a> {
        self.provider
    }

    /// Its number among those of its provider.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The bytes of its fields.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Its entry in the runtime's manifest, if there is one.
    #[must_use]
    pub fn manifest(&self) -> Option<&'static ManifestEvent> {
        manifest::event(self.provider.manifest(), self.id, self.version)
    }

    /// Its name: that which it brings, or that of the manifest. Empty if neither has one.
    #[must_use]
    pub fn name(&self) -> Text<'a> {
        if !self.name.is_empty() {
            return self.name;
        }
        self.manifest().map_or(self.name, |event| Text::from(event.name))
    }

    /// Whether there is a description of its fields, its own or the manifest's. Whether the payload agrees says
    /// [`is_exact`](Self::is_exact).
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.own_fields().is_some() || self.manifest().is_some() || self.fields.is_some()
    }

    /// Names and values of its fields, in their order. None if they are not known. Where the payload ends too early,
    /// those before; where it is not as the event describes it, those before the first that may be wrong.
    /// [`is_exact`](Self::is_exact) says whether the payload is accounted for; otherwise show it with them.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        self.record().fields()
    }

    /// The value of the field of this name, if it is among [`fields`](Self::fields).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        self.record().field(name)
    }

    /// Whether the payload has the fields, all of them and nothing else. Not so for an event of a newer runtime, which
    /// may have further fields at its end, nor for one that is described otherwise than it is written, or as having no
    /// fields.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_known() && self.record().is_whole()
    }

    #[inline]
    pub(crate) fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.payload, self.is_64_bit)
    }

    /// The fields that it describes itself, if there is one and it does so truly.
    fn own_fields(&self) -> Option<FieldList<'a>> {
        self.fields.filter(|fields| !fields.is_empty() && self.provider != Provider::UNIVERSAL_SYSTEM)
    }

    /// The fields as the payload has them: if it describes them itself, in the widths that fit.
    fn record(&self) -> Record<'a> {
        let Some(own) = self.own_fields() else {
            let fields = self.manifest().map_or(Definitions::NONE, |event| Definitions::Manifest(event.fields));
            return Record::new(fields, self.cursor());
        };
        let with = |widths| Record::new(own.definitions(), self.cursor().with_widths(widths));
        let fitting = Widths::KNOWN.into_iter().map(with).find(|record| record.is_whole());
        fitting.unwrap_or_else(|| with(Widths::Unknown))
    }
}
