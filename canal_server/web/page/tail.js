// Shows the changes of a table as they come, the last ones of them. What tables have is
// set as text, never as HTML; characters that would hide or move others are escaped.
const CHANGES_MAX = 200; // that are shown
const VALUE_MAX = 500; // characters of a value that are shown
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

const dialog = document.getElementById("tail");
const field = document.getElementById("tail-table");
const follow = document.getElementById("tail-follow");
const pause = document.getElementById("tail-pause");
const state = document.getElementById("tail-state");
const position = document.getElementById("tail-position");
const count = document.getElementById("tail-count");
const list = document.getElementById("tail-changes");

let tail = null; // the one that is followed

// Opens the dialog; `ask` asks the REST interface.
export async function openTail(destination, ask) {
  const path = `destinations/${encodeURIComponent(destination)}`;
  const ends = new AbortController();
  const listening = { signal: ends.signal };
  const begin = () => beginTail(`api/v1/${path}/tail?table=${encodeURIComponent(field.value)}`);
  follow.addEventListener("click", begin, listening);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // of closing the dialog
    begin();
  }, listening);
  pause.addEventListener("click", () => tail?.setPaused(!tail.isPaused), listening);
  dialog.addEventListener("close", () => { ends.abort(); endTail(); }, { once: true });
  field.value = "";
  document.getElementById("tail-title").textContent = `Tail of ${destination}`;
  for (const each of [state, position, count, list]) each.replaceChildren();
  pause.disabled = true;
  dialog.showModal();
  try {
    const { tables } = await ask(`${path}/tables`);
    document.getElementById("tail-tables").replaceChildren(...tables.map((table) => {
      const option = document.createElement("option");
      option.value = table;
      return option;
    }));
  } catch {
    document.getElementById("tail-tables").replaceChildren(); // without a history
  }
}

function beginTail(url) {
  endTail();
  tail = new Tail();
  tail.run(url);
}

function endTail() {
  tail?.end();
  tail = null;
}

class Tail {
  constructor() {
    this.aborter = new AbortController();
    this.isPaused = false;
    this.waiting = []; // elements that are not shown so far
    this.received = 0;
    for (const each of [position, count, list]) each.replaceChildren();
    state.textContent = "Connecting …";
    this.setPaused(false);
    pause.disabled = false;
  }

  end() {
    this.aborter.abort();
    pause.disabled = true;
  }

  setPaused(isPaused) {
    this.isPaused = isPaused;
    pause.textContent = isPaused ? "Resume" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    this.show();
  }

  async run(url) {
    let why = "The tail has ended.";
    try {
      const answer = await fetch(url, { signal: this.aborter.signal });
      if (!answer.ok) {
        const problem = await answer.json();
        why = problem.detail ?? problem.title;
      } else {
        for await (const events of eventsOf(answer)) this.receive(events);
        why = `${state.textContent}. ${why}`;
      }
    } catch (error) {
      if (this.aborter.signal.aborted) return;
      why = `The connection ended: ${error.message}`;
    }
    state.textContent = why;
    pause.disabled = true;
    this.setPaused(false);
  }

  receive(events) {
    for (const { name, data } of events) {
      if (name === "state") {
        showState(data);
      } else if (name === "skipped") {
        this.waiting.push(skippedElement(data));
      } else if (name) {
        this.received += 1;
        state.textContent = "Changes arrive";
        position.textContent = "";
        this.waiting.push(() => changeElement(data));
      }
    }
    this.waiting.splice(0, this.waiting.length - CHANGES_MAX);
    this.show();
  }

  show() {
    if (this.received) {
      const shown = `${this.received.toLocaleString("en")} received, at most the last ${CHANGES_MAX} are shown`;
      count.textContent = this.isPaused ? `${shown}; paused, ${this.waiting.length} wait` : shown;
    }
    if (this.isPaused || !this.waiting.length) return;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    list.append(...this.waiting.map((each) => (typeof each === "function" ? each() : each)));
    this.waiting = [];
    while (list.children.length > CHANGES_MAX) list.firstElementChild.remove();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }
}

// Yields the events of an answer, those of each received part together.
async function* eventsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const end = value.includes("\n") ? (rest + value).lastIndexOf("\n\n") : -1;
    rest += value;
    if (end < 0) continue;
    yield rest.slice(0, end).split("\n\n").map(eventOf);
    rest = rest.slice(end + 2);
  }
}

function eventOf(text) {
  const found = { name: "", data: null };
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) found.name = line.slice(7);
    else if (line.startsWith("data: ")) found.data = JSON.parse(line.slice(6));
  }
  return found;
}

function showState(found) {
  const reason = found.reason.charAt(0).toUpperCase() + found.reason.slice(1);
  state.textContent = `${reason}${found.since_ms ? `, since ${clock(found.since_ms)}` : ""}`;
  const written = found.position_ms ? `, written ${clock(found.position_ms)}` : "";
  position.textContent = found.position ? `The source was read up to ${found.position}${written}` : "";
}

function skippedElement(found) {
  const item = made("li", `Skipped ${found.entries.toLocaleString("en")} entries of all tables, with ${found.rows.toLocaleString("en")} rows: ${found.reason}`);
  item.className = "skipped";
  return item;
}

function changeElement(change) {
  const item = document.createElement("li");
  item.className = change.kind;
  const title = made("h3", "");
  const table = [change.schema, change.table].filter(Boolean).join(".");
  title.append(made("strong", change.kind.replace("_", " ")), ` ${visible(table)}`);
  const gtid = change.gtid ? ` · ${change.gtid}` : "";
  const origin = made("p", `${clock(change.commit_time_ms)} · ${change.file}:${change.offset}${gtid}`);
  origin.className = "hint";
  item.append(title, origin);
  if (change.sql !== null) item.append(made("pre", visible(change.sql)));
  if (change.before || change.after) item.append(rowElement(change));
  return item;
}

function rowElement(change) {
  const { before, after } = change;
  const row = document.createElement("dl");
  const changed = new Set(change.changed);
  for (const name of Object.keys({ ...before, ...after })) {
    const column = document.createElement("div");
    const term = made("dt", visible(name));
    if (change.key.includes(name)) term.append(" (key)");
    const value = document.createElement("dd");
    if (before && after && !changed.has(name)) {
      value.append(valueElement("span", after[name] ?? before[name] ?? null));
    } else {
      if (before && name in before) value.append(valueElement("del", before[name]));
      if (before && after) value.append(" ");
      if (after && name in after) value.append(valueElement("ins", after[name]));
      if (before && after) column.className = "changed";
    }
    column.append(term, value);
    row.append(column);
  }
  return row;
}

function valueElement(tag, text) {
  if (text === null) {
    const element = made(tag, "");
    element.append(made("em", "NULL"));
    return element;
  }
  return made(tag, visible(text));
}

function visible(text) {
  const shown = text.slice(0, VALUE_MAX).replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return text.length > VALUE_MAX ? `${shown} … (${text.length.toLocaleString("en")} characters)` : shown;
}

function made(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

const clock = (ms) => new Date(ms).toLocaleString();
