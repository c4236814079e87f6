// What all parts of the page need: questions to the REST interface, elements, and values
// as texts. All texts of the server are set as text, never as HTML.
const API = "api/v1";
const CLOCK = {
  year: "numeric", month: "numeric", day: "numeric",
  hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short",
};

export async function ask(path, options) {
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

export function button(text, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", action);
  return made;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Shows notes: each is a text, and the section of the page of messages about it.
export function setNotes(list, notes) {
  const key = JSON.stringify(notes);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...notes.map(({ text, anchor, title }) => {
    const item = made("li", text);
    if (anchor) {
      const link = made("a", title ? `More about ${title}` : "More about this");
      link.href = `messages.html#${anchor}`;
      item.append(" ", link);
    }
    return item;
  }));
}

export function setFacts(list, facts) {
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

export const number = (value) => (value === null || value === undefined ? "-" : value.toLocaleString("en"));
// In the zone of the browser, which may not be that of the server.
export const clock = (ms) => new Date(ms).toLocaleString(undefined, CLOCK);

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds < 0.5) return "none";
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export function made(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
