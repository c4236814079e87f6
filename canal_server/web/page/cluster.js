// The clusters of this server: who runs each destination, who stands by, the session.
import { ask, made, setFacts, setText } from "./elements.js";

const section = document.getElementById("clusters");
const failure = document.getElementById("cluster-failure");
const shown = new Map(); // the element of each cluster, by its ZooKeeper

let isAsking = false;

export async function showClusters() {
  if (isAsking) return;
  isAsking = true;
  try {
    show(await ask("clusters"));
    setText(failure, "");
  } catch (error) {
    setText(failure, `The cluster is not known: ${error.message}`);
  } finally {
    isAsking = false;
    failure.hidden = !failure.textContent;
  }
}

function show({ this_server: thisServer, clusters }) {
  section.hidden = clusters.length === 0;
  const names = new Set(clusters.map((each) => each.zookeeper));
  for (const [name, element] of shown) {
    if (!names.has(name)) { element.remove(); shown.delete(name); }
  }
  for (const each of clusters) {
    if (!shown.has(each.zookeeper)) {
      const element = document.getElementById("cluster").content.firstElementChild.cloneNode(true);
      shown.set(each.zookeeper, element);
      section.append(element);
    }
    showOne(shown.get(each.zookeeper), each, thisServer);
  }
}

export function hideClusters() {
  section.hidden = failure.hidden = true;
}

function showOne(element, each, thisServer) {
  const named = (server) => (server === thisServer ? `${server} (this server)` : server);
  const { session } = each;
  setText(element.querySelector("h2"), `Cluster at ${each.zookeeper}`);
  const error = element.querySelector(".error");
  error.hidden = !each.error;
  setText(error, each.error ?? "");
  const expired = session.expired ? `, ${session.expired} expired since the start` : "";
  setFacts(element.querySelector("dl"), [
    ["Session with ZooKeeper", `${session.state}${expired}`],
    ["Servers", each.servers.map(named).join(", ") || "-"],
  ]);
  const rows = Object.entries(each.destinations).map(([name, view]) => [
    name,
    view?.runs_on ? named(view.runs_on) : view ? "no server" : "-",
    view?.candidates.filter((server) => server !== view.runs_on).map(named).join(", ") || "-",
  ]);
  const body = element.querySelector("table").tBodies[0];
  const key = JSON.stringify(rows);
  if (body.dataset.key === key) return;
  body.dataset.key = key;
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    row.append(...cells.map((text, i) => {
      const cell = made("td", text);
      cell.dataset.label = element.querySelectorAll("th")[i].textContent;
      return cell;
    }));
    return row;
  }));
}
