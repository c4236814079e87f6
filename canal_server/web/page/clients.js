// The clients and the ranged subscriptions of a destination: where each of them stands.
import { button, clock, duration, made, number, setText } from "./elements.js";

const SUBSCRIPTIONS_MAX = 50; // that are shown

// `unsubscribe` removes the subscription of a client, `null`: the visitor may not. That
// of `ownId` is the server's own.
export function showClients(card, each, ownId, unsubscribe) {
  const table = card.querySelector("table.clients");
  table.hidden = each.clients.length === 0;
  const isGroup = Boolean(each.sources);
  showRows(table, each.clients, Boolean(unsubscribe), {
    id: (client) => client.client_id,
    fill: (row, client) => {
      const cells = [...row.cells];
      setText(cells[0], String(client.client_id));
      setText(cells[1], client.connected ? "yes" : "no");
      showPosition(cells[2], client.acked, isGroup, "");
      const open = client.open_batches;
      const batches = `${number(open)} open ${open === 1 ? "batch" : "batches"}`;
      if (open) showPosition(cells[3], client.sent, isGroup, batches);
      else showPosition(cells[3], null, false, client.acked ? "nothing more" : "");
      [number(client.lag_entries), duration(client.lag_s), number(client.rows)]
        .forEach((text, i) => setText(cells[4 + i], text));
      row.className = client.blocks ? "bad" : "";
    },
    actions: (client) => (client.client_id === ownId ? [] : [button("Unsubscribe", () => unsubscribe(client.client_id))]),
    columns: 7,
  });
}

// `remove` removes a subscription, `null`: the visitor may not.
export function showSubscriptions(card, each, remove) {
  const table = card.querySelector("table.subscriptions");
  const queries = each.ranges?.queries ?? {};
  const all = Object.entries(each.ranges?.subscriptions ?? {})
    .map(([name, found]) => ({ name, query: queries[name], ...found }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
  table.hidden = all.length === 0;
  setText(table.querySelector(".more"), all.length > SUBSCRIPTIONS_MAX
    ? `the first ${SUBSCRIPTIONS_MAX} of ${number(all.length)}` : "");
  const key = (found) => `${found.name} ${found.query ? "read" : ""} ${found.temporary}`;
  showRows(table, all.slice(0, SUBSCRIPTIONS_MAX), Boolean(remove), {
    id: key,
    fill: (row, found) => {
      const use = found.query ? `query ${found.query}` : found.temporary ? "its connection" : "nobody";
      [found.name, found.position, found.acked_ms ? clock(found.acked_ms) : "nothing yet",
        duration(found.unacked_s), use].forEach((text, i) => setText(row.cells[i], text));
    },
    // One that is read would be created again.
    actions: (found) => (found.query || found.temporary ? []
      : [button("Remove", () => remove(found.name))]),
    columns: 5,
  });
}

// Updates the rows of a table. A button that has the focus must stay, and so must what is
// unfolded: rows of known items are kept.
function showRows(table, items, allowsActions, { id, fill, actions, columns }) {
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  for (const item of items) {
    const itemId = `${id(item)}${allowsActions ? "" : " (shown only)"}`;
    let row = known.get(itemId);
    known.delete(itemId);
    if (!row) {
      row = body.insertRow();
      row.dataset.id = itemId;
      for (let i = 0; i <= columns; i += 1) {
        // A narrow screen shows each row as a list, with the heading before each cell.
        row.insertCell().dataset.label = table.tHead.rows[0].cells[i].textContent;
      }
      if (allowsActions) row.cells[columns].append(...actions(item));
    }
    fill(row, item);
  }
  for (const row of known.values()) row.remove();
}

// Shows a position, the time of its commit, and its GTIDs for who unfolds them.
function showPosition(cell, position, hasSource, note) {
  if (!cell.children.length) {
    const gtids = document.createElement("details");
    gtids.append(made("summary", "GTIDs"), made("code", ""));
    cell.append(...["position", "source", "time", "note"].map((name) => {
      const line = made("span", "");
      line.className = name;
      return line;
    }), gtids);
  }
  const line = (name) => cell.querySelector(`.${name}`);
  setText(line("position"), position?.position ?? (note ? "" : "-"));
  setText(line("source"), position && hasSource ? position.source : "");
  setText(line("time"), position?.time ? clock(position.time) : "");
  setText(line("note"), note);
  const gtids = cell.querySelector("details");
  gtids.hidden = !position?.gtid;
  setText(gtids.querySelector("code"), position?.gtid ?? "");
}
