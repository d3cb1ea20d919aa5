//! Envelopes for people: structure as lines and tables, and what participants wrote visibly apart from it.

use serde_json::{Map, Value};

use crate::field::words;
use crate::terminal::Style;
use crate::visible;

/// The widest table; what is wider is shown row by row.
const TABLE_COLUMNS_MAX: usize = 110;

/// What a rendering depends on beside the envelope.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// How emphasis is written.
    pub style: Style,
    /// The words before the noun of a proposed command: the program and what was said for all commands.
    pub program: &'a str,
    /// Whether the operation takes `offset`.
    pub takes_offset: bool,
}

/// Renders a successful envelope.
pub fn envelope(context: Context<'_>, envelope: &Value) -> String {
    let mut page = Page { context, content: envelope["content"].as_object(), shown: Vec::new(), text: String::new() };
    page.standing(envelope);
    match &envelope["result"] {
        Value::Object(result) => page.object(result, 0),
        Value::Null => {}
        other => page.push(0, &plain(other)),
    }
    page.left_over_content();
    page.secret(&envelope["secret"]);
    page.receipt(&envelope["receipt"]);
    page.rest(envelope);
    page.next(&envelope["next"]);
    page.text
}

/// Renders a refusal.
pub fn refusal(style: Style, envelope: &Value) -> String {
    let error = &envelope["error"];
    let text = |name: &str| visible::line(error[name].as_str().unwrap_or_default());
    let mut shown = format!("{} {} ({})\n", style.red("error:"), text("message"), text("code"));
    if !text("fix").is_empty() {
        shown.push_str(&format!("fix: {}\n", text("fix")));
    }
    for (name, detail) in error["details"].as_object().into_iter().flatten() {
        shown.push_str(&format!("  {}: {}\n", visible::line(name), plain(detail)));
    }
    if let Some(wait) = error["retry_after_ms"].as_u64() {
        shown.push_str(&format!("  try again in {wait} ms\n"));
    }
    shown
}

/// A command that makes a call with these arguments.
pub fn command_line(program: &str, operation: &str, arguments: &Value) -> String {
    let (noun, verb) = words(operation);
    let mut line = format!("{program} {noun}");
    if let Some(verb) = verb {
        line.push_str(&format!(" {verb}"));
    }
    for (name, value) in arguments.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        line.push_str(&format!(" --{} {}", name.replace('_', "-"), quoted(&value)));
    }
    visible::line(&line)
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+~".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A scalar, or a list of scalars, in one line.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => visible::line(text),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => visible::line(&other.to_string()),
    }
}

fn is_flat(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.iter().any(|item| item.is_object() || item.is_array()),
        other => !other.is_object(),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A field's name as it is shown.
fn label(name: &str) -> String {
    visible::line(&name.replace('_', " "))
}

struct Page<'a> {
    context: Context<'a>,
    content: Option<&'a Map<String, Value>>,
    /// The keys of the content that stands on the page already.
    shown: Vec<&'a str>,
    text: String,
}

impl<'a> Page<'a> {
    fn push(&mut self, indent: usize, line: &str) {
        self.text.push_str(&" ".repeat(indent));
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn standing(&mut self, envelope: &Value) {
        match envelope["standing"].as_str() {
            Some("pending") => {
                let line = self.context.style.bold(
                    "pending: not sealed yet; it is kept, and will be sent to the host that decides as soon as that can be reached",
                );
                self.push(0, &line);
            }
            Some("overturned") => {
                let line = self.context.style.bold("overturned: the branch that this was sealed in was abandoned");
                self.push(0, &line);
            }
            _ => {}
        }
    }

    /// The fields of an object: first those of one line, aligned, then each other one.
    fn object(&mut self, object: &'a Map<String, Value>, indent: usize) {
        let is_line = |name: &str, value: &Value| is_flat(value) && self.content_keys(name, value).is_none();
        let (lines, blocks): (Vec<_>, Vec<_>) = object.iter().partition(|(name, value)| is_line(name, value));
        let columns = lines.iter().map(|(name, _)| width(&label(name))).max().unwrap_or(0);
        for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_null()) {
            let name = self.context.style.dim(&padded(&label(name), columns));
            self.push(indent, &format!("{name}  {}", plain(value)));
        }
        for (name, value) in blocks {
            self.block(name, value, indent);
        }
    }

    fn block(&mut self, name: &str, value: &'a Value, indent: usize) {
        if let Some(keys) = self.content_keys(name, value) {
            for key in keys {
                self.content(key, indent);
            }
            return;
        }
        let style = self.context.style;
        match value {
            Value::Object(object) if object.is_empty() => {}
            Value::Object(object) => {
                self.push(indent, &style.bold(&label(name)));
                self.object(object, indent + 2);
            }
            Value::Array(rows) => {
                self.push(indent, &style.bold(&format!("{} ({})", label(name), rows.len())));
                self.rows(rows, indent + 2);
            }
            other => self.push(indent, &format!("{}  {}", label(name), plain(other))),
        }
    }

    fn rows(&mut self, rows: &'a [Value], indent: usize) {
        if let Some(lines) = self.table(rows, indent) {
            for (at, line) in lines.iter().enumerate() {
                let line = if at == 0 { self.context.style.dim(line) } else { line.clone() };
                self.push(indent, &line);
            }
            return;
        }
        for (at, row) in rows.iter().enumerate() {
            if at > 0 {
                self.text.push('\n');
            }
            match row {
                Value::Object(row) => self.object(row, indent),
                other => self.push(indent, &plain(other)),
            }
        }
    }

    /// Rows as a table with a heading, if all are flat and it is not too wide.
    fn table(&self, rows: &'a [Value], indent: usize) -> Option<Vec<String>> {
        let mut names: Vec<&str> = Vec::new();
        for row in rows {
            for (name, value) in row.as_object()? {
                if !is_flat(value) || self.content_keys(name, value).is_some() {
                    return None;
                }
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        }
        let mut lines: Vec<Vec<String>> = vec![names.iter().map(|name| label(name)).collect()];
        lines.extend(rows.iter().map(|row| names.iter().map(|name| plain(&row[name])).collect()));
        let columns: Vec<usize> =
            (0..names.len()).map(|at| lines.iter().map(|line| width(&line[at])).max().unwrap_or(0)).collect();
        let total = indent + columns.iter().sum::<usize>() + 2 * columns.len().saturating_sub(1);
        (total <= TABLE_COLUMNS_MAX).then(|| {
            let join = |line: &Vec<String>| {
                let cells: Vec<_> = line.iter().zip(&columns).map(|(cell, columns)| padded(cell, *columns)).collect();
                cells.join("  ")
            };
            lines.iter().map(join).collect()
        })
    }

    /// The keys of the content that a field points to, if it is one that does.
    fn content_keys(&self, name: &str, value: &'a Value) -> Option<Vec<&'a str>> {
        let content = self.content?;
        let known = |value: &'a Value| value.as_str().filter(|key| content.contains_key(*key));
        if !name.ends_with("_content") {
            return None;
        }
        match value {
            Value::Array(keys) if !keys.is_empty() => keys.iter().map(known).collect(),
            other => known(other).map(|key| vec![key]),
        }
    }

    /// One text of a participant. Every line of it stands behind a bar, so that nothing in it passes for structure.
    fn content(&mut self, key: &'a str, indent: usize) {
        let Some(item) = self.content.and_then(|content| content.get(key)) else { return };
        self.shown.push(key);
        let style = self.context.style;
        let mut heading = visible::line(item["field"].as_str().unwrap_or("text"));
        if let Some(author) = item["author"].as_str() {
            heading.push_str(&format!(" by {}", visible::line(author)));
        }
        let media_type = item["media_type"].as_str().map(visible::line);
        let bytes =
            item["bytes"].as_u64().map(|bytes| format!("{bytes} {}", if bytes == 1 { "byte" } else { "bytes" }));
        let about: Vec<String> = [media_type, bytes].into_iter().flatten().collect();
        if !about.is_empty() {
            heading.push_str(&format!(" ({})", about.join(", ")));
        }
        if item["missing"] == true {
            heading.push_str(": not here, or not readable any more");
        }
        self.push(indent, &style.dim(&format!("┌ {heading}")));
        let text = visible::text(item["text"].as_str().unwrap_or_default());
        for line in text.lines() {
            let bar = style.dim("│");
            self.push(indent, &format!("{bar} {line}"));
        }
        if let Some(next) = item["next_offset"].as_u64() {
            let how = if self.context.takes_offset {
                format!("the rest: --offset {next}")
            } else {
                format!("the rest begins at offset {next}: read it by a get with --offset {next}")
            };
            self.push(indent, &style.dim(&format!("└ cut here; {how}")));
        }
    }

    fn left_over_content(&mut self) {
        for key in self.content.into_iter().flat_map(Map::keys) {
            if !self.shown.contains(&key.as_str()) {
                self.content(key, 0);
            }
        }
    }

    fn secret(&mut self, secret: &Value) {
        for (name, value) in secret.as_object().into_iter().flatten() {
            let heading = format!("{} — this is shown once; keep it safe:", label(name));
            let heading = self.context.style.bold(&heading);
            self.push(0, &heading);
            self.push(2, &plain(value));
        }
    }

    fn receipt(&mut self, receipt: &'a Value) {
        let Some(receipt) = receipt.as_object() else { return };
        let text = |name: &str| receipt.get(name).map(plain).unwrap_or_default();
        let effects = receipt.get("effects").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let line =
            format!("receipt {}  {}  key {}  sealed {}", text("id"), text("operation"), text("key"), text("sealed_at"));
        let line = self.context.style.dim(&line);
        self.push(0, &line);
        for effect in effects {
            let about = effect.as_object().into_iter().flatten().filter(|(name, _)| *name != "kind");
            let about: Vec<_> = about.map(|(name, value)| format!("{} {}", label(name), plain(value))).collect();
            let line = format!("effect {}  {}", label(effect["kind"].as_str().unwrap_or("?")), about.join("  "));
            let line = self.context.style.dim(&line);
            self.push(2, &line);
        }
    }

    /// What else stands at the top of an envelope: the state that was read, the key that was made, where to go on.
    fn rest(&mut self, envelope: &Value) {
        const KNOWN: [&str; 9] =
            ["ok", "standing", "receipt", "result", "secret", "content", "as_of", "cursor", "next"];
        for (name, value) in
            envelope.as_object().into_iter().flatten().filter(|(name, _)| !KNOWN.contains(&name.as_str()))
        {
            self.push(0, &format!("{}  {}", label(name), plain(value)));
        }
        let as_of = &envelope["as_of"];
        if as_of.is_object() {
            let (object, index, at) = (plain(&as_of["object"]), plain(&as_of["index"]), plain(&as_of["sealed_at"]));
            let line = self.context.style.dim(&format!("as of {object} at {index}, sealed {at}"));
            self.push(0, &line);
        }
        if let Some(cursor) = envelope["cursor"].as_str() {
            self.push(0, &format!("more: --cursor {}", quoted(&visible::line(cursor))));
        }
    }

    fn next(&mut self, next: &Value) {
        for next in next.as_array().into_iter().flatten() {
            let mut line = format!("next: {}", plain(&next["step"]));
            if let Some(operation) = next["operation"].as_str() {
                let command = command_line(self.context.program, operation, &next["arguments"]);
                line.push_str(&format!(" — {command}"));
            }
            self.push(0, &line);
        }
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
