// Shows what the REST interface has, and asks again every two seconds. All texts of the
// server are set as text, never as HTML.
import { showClients, showSubscriptions } from "./clients.js";
import { hideClusters, showClusters } from "./cluster.js";
import {
  ask, button, clock, duration, number, setFacts, setNotes, setText,
} from "./elements.js";
import { openTail } from "./tail.js";

const INTERVAL_MS = 2000;
const RATES_EVERY = 5; // rounds: a sample is taken every ten seconds

const STATE_TEXT = {
  idle: "waits for its first client", standby: "standby", starting: "starting",
  locating: "connecting to the source", dumping: "reading", catching_up: "catching up",
  waiting: "waiting for the source", blocked_on_client: "blocked: waits for a client",
  blocked_on_store: "blocked: no client is subscribed", stopping: "stopping",
  no_lease: "cannot run: ZooKeeper", failed: "failed", stopped: "stopped by an operator",
};

const main = document.getElementById("destinations");
const failure = document.getElementById("failure");
const cards = new Map();
const ACTION_ERROR_MS = 15000; // for which the error of an action is shown
let round = 0;
let isRefreshing = false;
let keepErrorUntil = 0;

async function refresh() {
  if (isRefreshing) return; // the server is slow: more requests would not help
  isRefreshing = true;
  const samples = round % RATES_EVERY === 0;
  round += 1;
  try {
    const all = await ask("destinations");
    show(all);
    if (samples) {
      showClusters(); // by itself: ZooKeeper may be slow
      await Promise.all(all.destinations.map(showRates));
    }
    if (Date.now() >= keepErrorUntil) setFailure("");
  } catch (error) {
    if (error.status === 401) { // whoever looks may see it no more
      removeCards(() => true);
      hideClusters();
    }
    setFailure(`The server does not answer as expected: ${error.message}`);
  } finally {
    isRefreshing = false;
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
  setText(document.getElementById("summary"), [all.host, all.version, count].filter(Boolean).join(" · "));
  const title = all.host ? `canal-server on ${all.host}` : "canal-server";
  document.title = ready === destinations.length ? title : `${destinations.length - ready} not ready · ${title}`;
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
  setNotes(card.querySelector(".remedies"), each.error_notes.map((note) => ({
    text: note.remedy ? `What to do: ${note.remedy}` : "", anchor: note.anchor, title: note.title,
  })));
  setNotes(card.querySelector(".notes"), notesOf(each));
  setFacts(card.querySelector("dl"), [
    ["Source", sourceText(each.source)],
    ["Runs on", runsOn(each)],
    ["Position", each.position || "-"],
    ["Lag behind the source", duration(each.lag_s)],
    ["Ring", each.store_fill_ratio === null ? "-" : `${Math.round(each.store_fill_ratio * 100)} % full`],
    ["Rows since the start", number(each.rows)],
    ...(each.delivery ? [["Message queue", `${each.delivery.queue}: ${each.delivery.state}, ${number(each.delivery.messages)} messages since the start`]] : []),
  ]);
  const path = `destinations/${encodeURIComponent(each.destination)}`;
  const allowed = (action) => (each.allows_actions ? action : null);
  // The delivery is one of them, and would lose its position.
  const ownId = each.delivery?.client_id;
  showClients(card, each, ownId, allowed((clientId) => act(
    `Remove the subscription of client ${clientId} to ${each.destination}? The server no longer retains changes for it.`,
    "Unsubscribe", `${path}/clients/${clientId}`, "DELETE")));
  showSubscriptions(card, each, allowed((name) => act(
    `Remove the ranged subscription ${name} of ${each.destination}? A query that returns resumes from its own checkpoint.`,
    "Remove", `${path}/subscriptions/${encodeURIComponent(name)}`, "DELETE")));
  showActions(card, each);
}

// What is worth to know, and the section of the page of messages about it.
function notesOf(each) {
  const notes = each.warnings.map((text, i) => {
    const note = each.warning_notes[i];
    const remedy = note ? ` What to do: ${note.remedy}` : "";
    return { text: `${text}.${remedy}`, anchor: note?.anchor, title: "warnings" };
  });
  if (each.uncertain_tables) {
    notes.unshift({ text: each.uncertain_tables.reason, anchor: "table-schema-uncertain" });
  }
  for (const why of Object.values(each.lost_clients ?? {})) {
    notes.unshift({ text: why, anchor: "client-position-lost" });
  }
  if (deliveryFails(each)) {
    const { queue, state, reason, since_ms: since } = each.delivery;
    const [what, anchor] = state === "stopped" ? ["has stopped", "delivery-stopped"]
      : ["is blocked", "delivery-failed"];
    notes.unshift({ text: `Delivery to ${queue} ${what}: ${reason}, since ${clock(since)}`, anchor });
  }
  if (each.blocked) {
    notes.unshift({ text: `${each.blocked.reason}, since ${clock(each.blocked.since_ms)}`, anchor: "ring-is-full" });
  }
  return notes;
}

function runsOn(each) {
  if (!each.running) return each.runs_on ?? "no server";
  return each.runs_on ? `${each.runs_on} (this server)` : "this server";
}

function deliveryFails(each) {
  return ["blocked", "stopped"].includes(each.delivery?.state);
}

function stateClass(each) {
  if (!each.ready || each.delivery?.state === "stopped") return "bad";
  if (deliveryFails(each)) return "warn";
  return each.state === "dumping" || each.state === "standby" || each.state === "idle" ? "good" : "warn";
}

function sourceText(source) {
  if (!source) return "-";
  return typeof source === "string" ? source : Object.values(source).filter((v) => typeof v !== "object").join(" ");
}

function showActions(card, each) {
  const actions = card.querySelector("article > .actions");
  const requested = each.allows_actions ? requestedOf(each) : [];
  const key = `${requested} ${each.allows_tail}`;
  if (actions.dataset.key === key) return;
  const focused = actions.contains(document.activeElement) ? document.activeElement.textContent : "";
  actions.dataset.key = key;
  const name = each.destination;
  const path = `destinations/${encodeURIComponent(name)}`;
  const start = (verb) => button(verb, () => act("", "", `${path}/start`, "POST", `${verb} of ${name} was requested`));
  const buttons = [button("Tables…", () => showHistory(name))];
  if (each.allows_tail) buttons.push(button("Tail…", () => openTail(name, ask)));
  for (const verb of requested) {
    buttons.push(verb !== "Stop" ? start(verb) : button("Stop", () => act(
      `Stop destination ${name}? Its clients receive nothing until it is started again.`,
      "Stop", `${path}/stop`, "POST")));
  }
  if (requested.length) buttons.push(button("Move clients…", () => move(name)));
  actions.replaceChildren(...buttons.flatMap((each_) => [each_, " "]));
  // Who pressed Start finds Stop there, and the focus stays among them.
  if (focused) (buttons.find((b) => b.textContent === focused) ?? buttons.at(-2)).focus();
}

// A start reads the settings again. One that runs, and cannot read its source, is retried, and so
// is a delivery that has stopped.
function requestedOf(each) {
  if (each.state === "stopped") return ["Start"];
  if (each.state === "failed" || each.state === "idle") return ["Start", "Stop"];
  const fails = each.error || each.delivery?.state === "stopped";
  return each.running && fails ? ["Retry", "Stop"] : ["Stop"];
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

async function act(question, verb, path, method, done = "") {
  if (question && !(await confirmed(question, verb))) return;
  try {
    await ask(path, { method });
    setText(document.getElementById("notice"), done);
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

await refresh();
setInterval(refresh, INTERVAL_MS);
