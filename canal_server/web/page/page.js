// Shows what the REST interface has, and asks again every two seconds. All texts of the
// server are set as text, never as HTML.
import { openTail } from "./tail.js";

const API = "api/v1";
const INTERVAL_MS = 2000;
const RATES_EVERY = 5; // rounds: a sample is taken every ten seconds

const STATE_TEXT = {
  idle: "waits for its first client", standby: "standby", starting: "starting",
  locating: "connecting to the source", dumping: "reading", catching_up: "catching up",
  waiting: "waiting for the source", blocked_on_client: "blocked: waits for a client",
  blocked_on_store: "blocked: no client is subscribed", stopping: "stopping",
  failed: "failed", stopped: "stopped by an operator",
};

const main = document.getElementById("destinations");
const failure = document.getElementById("failure");
const cards = new Map();
const ACTION_ERROR_MS = 15000; // for which the error of an action is shown
let round = 0;
let keepErrorUntil = 0;

async function ask(path, options) {
  const answer = await fetch(`${API}/${path}`, options);
  if (answer.status === 204) return null;
  const content = await answer.json();
  if (!answer.ok) {
    const error = new Error(content.detail ?? content.title);
    error.status = answer.status;
    throw error;
  }
  return content;
}

async function refresh() {
  try {
    const all = await ask("destinations");
    show(all);
    if (round % RATES_EVERY === 0) await Promise.all(all.destinations.map(showRates));
    round += 1;
    if (Date.now() >= keepErrorUntil) setFailure("");
  } catch (error) {
    if (error.status === 401) removeCards(() => true); // whoever looks may see it no more
    setFailure(`The server does not answer as expected: ${error.message}`);
  }
}

function setFailure(text) {
  failure.hidden = !text;
  if (failure.textContent !== text) failure.textContent = text;
}

function showActionError(error) {
  keepErrorUntil = Date.now() + ACTION_ERROR_MS;
  setFailure(error.message);
}

function show(all) {
  const { destinations } = all;
  const ready = destinations.filter((each) => each.ready).length;
  const count = destinations.length ? `${ready} of ${destinations.length} destinations ready` : "no destinations that you may observe";
  setText(document.getElementById("summary"), `${all.version} · ${count}`);
  document.title = ready === destinations.length ? "canal-server" : `${destinations.length - ready} not ready · canal-server`;
  const names = new Set(destinations.map((each) => each.destination));
  removeCards((name) => !names.has(name));
  for (const each of destinations) {
    if (!cards.has(each.destination)) {
      const card = document.getElementById("destination").content.firstElementChild.cloneNode(true);
      card.querySelector("h2").textContent = each.destination;
      card.dataset.destination = each.destination;
      cards.set(each.destination, card);
      main.append(card);
    }
    showOne(cards.get(each.destination), each, all);
  }
}

function removeCards(isOver) {
  for (const [name, card] of cards) {
    if (isOver(name)) { card.remove(); cards.delete(name); }
  }
}

function showOne(card, each, all) {
  const state = card.querySelector(".state");
  setText(state, STATE_TEXT[each.state] ?? each.state);
  state.className = `state ${stateClass(each)}`;
  const error = card.querySelector(".error");
  error.hidden = !each.error;
  setText(error, each.error ? `${each.error}${each.error_since_ms ? ` (since ${clock(each.error_since_ms)})` : ""}` : "");
  const notes = [...each.warnings];
  if (each.uncertain_tables) notes.unshift(each.uncertain_tables.reason);
  if (each.blocked) notes.unshift(`${each.blocked.reason}, since ${clock(each.blocked.since_ms)}`);
  setItems(card.querySelector(".notes"), notes);
  setFacts(card.querySelector("dl"), [
    ["Source", sourceText(each.source)],
    ["Runs on", each.runs_on ?? "this server"],
    ["Position", each.position || "-"],
    ["Lag behind the source", duration(each.lag_s)],
    ["Ring", each.store_fill_ratio === null ? "-" : `${Math.round(each.store_fill_ratio * 100)} % full`],
    ["Rows since the start", number(each.rows)],
  ]);
  showClients(card, each, each.allows_actions);
  showActions(card, each);
}

function stateClass(each) {
  if (!each.ready) return "bad";
  return each.state === "dumping" || each.state === "standby" || each.state === "idle" ? "good" : "warn";
}

function sourceText(source) {
  if (!source) return "-";
  return typeof source === "string" ? source : Object.values(source).filter((v) => typeof v !== "object").join(" ");
}

function showClients(card, each, allowsActions) {
  const table = card.querySelector("table");
  table.hidden = each.clients.length === 0;
  const rows = each.clients.map((client) => [
    client.client_id, client.connected ? "yes" : "no", number(client.lag_entries),
    duration(client.lag_s), number(client.rows), client,
  ]);
  const body = table.tBodies[0];
  const key = JSON.stringify([rows, allowsActions]);
  if (body.dataset.key === key) return;
  // A button that has the focus must stay: rows of known clients are updated.
  const known = new Map([...body.rows].map((row) => [row.dataset.client, row]));
  for (const cells of rows) {
    const client = cells.pop();
    let row = known.get(String(client.client_id));
    known.delete(String(client.client_id));
    if (!row) {
      row = body.insertRow();
      row.dataset.client = client.client_id;
      for (let i = 0; i <= cells.length; i += 1) row.insertCell();
      if (allowsActions) row.cells[cells.length].append(unsubscribeButton(each.destination, client.client_id));
    }
    cells.forEach((text, i) => setText(row.cells[i], String(text)));
    row.className = client.blocks ? "bad" : "";
  }
  for (const row of known.values()) row.remove();
  body.dataset.key = key;
}

function unsubscribeButton(destination, clientId) {
  return button("Unsubscribe", () => act(
    `Remove the subscription of client ${clientId} to ${destination}? The server no longer retains changes for it.`,
    "Unsubscribe", `destinations/${encodeURIComponent(destination)}/clients/${clientId}`, "DELETE"));
}

function showActions(card, each) {
  const actions = card.querySelector("article > .actions");
  const requested = each.allows_actions ? (each.state === "stopped" ? "start" : "stop") : "";
  const key = `${requested} ${each.allows_tail}`;
  if (actions.dataset.key === key) return;
  actions.dataset.key = key;
  actions.replaceChildren(button("Tables…", () => showHistory(each.destination)), " ");
  if (each.allows_tail) actions.append(button("Tail…", () => openTail(each.destination, ask)), " ");
  const path = `destinations/${encodeURIComponent(each.destination)}`;
  if (requested === "start") {
    actions.append(button("Start", () => act("", "", `${path}/start`, "POST")), " ");
  } else if (requested === "stop") {
    actions.append(button("Stop", () => act(
      `Stop destination ${each.destination}? Its clients receive nothing until it is started again.`,
      "Stop", `${path}/stop`, "POST")), " ");
  }
  if (requested) actions.append(button("Move clients…", () => move(each.destination)));
}

// Shows who changed a table, when, and how its columns differ since.
async function showHistory(destination) {
  const dialog = document.getElementById("history");
  const field = document.getElementById("history-table");
  const list = document.getElementById("history-changes");
  const path = `destinations/${encodeURIComponent(destination)}/tables`;
  let shown = "";
  const look = async () => {
    // The field also reports a change when a click on Close takes the focus away.
    if (!field.value || field.value === shown) return;
    shown = field.value;
    try {
      const { changes } = await ask(`${path}/${encodeURIComponent(field.value)}/history`);
      list.replaceChildren(...changes.reverse().flatMap(changeElements));
    } catch (error) {
      list.textContent = error.message;
    }
  };
  const ends = new AbortController();
  field.addEventListener("change", look, { signal: ends.signal });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    look();
  }, { signal: ends.signal });
  field.value = "";
  list.replaceChildren();
  setText(document.getElementById("history-title"), `Tables of ${destination}`);
  dialog.showModal();
  try {
    const { tables } = await ask(path);
    document.getElementById("history-tables").replaceChildren(...tables.map((table) => {
      const option = document.createElement("option");
      option.value = table;
      return option;
    }));
  } catch (error) {
    list.textContent = error.message;
  }
  dialog.addEventListener("close", () => ends.abort(), { once: true });
}

function changeElements(change) {
  const title = document.createElement("h3");
  const who = change.threadId ? ` · thread ${change.threadId}` : "";
  title.textContent = `${change.time ?? ""} · ${change.position}${who}`;
  const parts = [title];
  if (change.sql) {
    const sql = document.createElement("pre");
    sql.textContent = change.sql;
    parts.push(sql);
  }
  const diff = document.createElement("pre");
  for (const line of change.lines) {
    const part = document.createElement("span");
    part.textContent = `${line}\n`;
    part.className = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    diff.append(part);
  }
  parts.push(diff);
  return parts;
}

// Asks for a position, shows what a move there would do, and then moves clients.
async function move(destination) {
  const dialog = document.getElementById("move");
  const form = dialog.querySelector("form");
  const effects = document.getElementById("move-effects");
  const confirm = form.querySelector("button[value=confirm]");
  const path = `destinations/${encodeURIComponent(destination)}/seek`;
  const request = (dryRun) => {
    const ids = form.clients.value.split(/[\s,]+/).filter(Boolean).map(Number);
    return {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ to: form.to.value, clients: ids.length ? ids : null, dry_run: dryRun }),
    };
  };
  const preview = async () => {
    if (!form.reportValidity()) return;
    confirm.disabled = true;
    setText(effects, "Looking it up …");
    try {
      const plan = await ask(path, request(true));
      setText(effects, [...plan.warnings, ...plan.lines].join("\n"));
      confirm.disabled = false;
    } catch (error) {
      setText(effects, error.message);
    }
  };
  const ends = new AbortController();
  const listening = { signal: ends.signal };
  form.addEventListener("input", () => { confirm.disabled = true; }, listening);
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault(); // only the button moves
    preview();
  }, listening);
  document.getElementById("move-preview").addEventListener("click", preview, listening);
  form.reset();
  confirm.disabled = true;
  setText(effects, "");
  setText(document.getElementById("move-title"), `Move clients of ${destination}`);
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((resolve) => {
    dialog.addEventListener("close", resolve, { once: true });
  });
  ends.abort();
  if (dialog.returnValue !== "confirm") return;
  try {
    await ask(path, request(false));
  } catch (error) {
    showActionError(error);
    return;
  }
  await refresh();
}

async function act(question, verb, path, method) {
  if (question && !(await confirmed(question, verb))) return;
  try {
    await ask(path, { method });
  } catch (error) {
    showActionError(error);
    return;
  }
  await refresh();
}

function confirmed(question, verb) {
  const dialog = document.getElementById("confirm");
  document.getElementById("question").textContent = question;
  dialog.querySelector("button[value=confirm]").textContent = verb;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "confirm"), { once: true });
  });
}

async function showRates(each) {
  const { samples } = await ask(`destinations/${encodeURIComponent(each.destination)}/throughput`);
  const card = cards.get(each.destination);
  if (!card) return;
  const figure = card.querySelector("figure");
  const most = Math.max(0, ...samples.map((sample) => sample.rows_per_s));
  const now = Date.now() / 1000;
  const points = samples.map((sample) => {
    const x = 360 - Math.min(360, (now - sample.time_s) / 10);
    const y = 58 - (most ? (sample.rows_per_s / most) * 56 : 0);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  figure.querySelector("path").setAttribute("d", points.length ? `M${points.join("L")}` : "");
  const last = samples.at(-1)?.rows_per_s;
  const text = samples.length
    ? `Rows per second in the last hour: now ${number(Math.round(last))}, at most ${number(Math.round(most))}`
    : "Rows per second: nothing was measured yet";
  setText(figure.querySelector("figcaption"), text);
  setText(figure.querySelector("title"), text);
}

function button(text, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", action);
  return made;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setItems(list, texts) {
  if (list.dataset.key === JSON.stringify(texts)) return;
  list.dataset.key = JSON.stringify(texts);
  list.replaceChildren(...texts.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

function setFacts(list, facts) {
  if (list.children.length !== facts.length) {
    list.replaceChildren(...facts.map(([name]) => {
      const group = document.createElement("div");
      const term = document.createElement("dt");
      term.textContent = name;
      group.append(term, document.createElement("dd"));
      return group;
    }));
  }
  facts.forEach(([, value], i) => setText(list.children[i].lastElementChild, String(value)));
}

const number = (value) => (value === null || value === undefined ? "-" : value.toLocaleString("en"));
const clock = (ms) => new Date(ms).toLocaleString();

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds < 0.5) return "none";
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

await refresh();
setInterval(refresh, INTERVAL_MS);
