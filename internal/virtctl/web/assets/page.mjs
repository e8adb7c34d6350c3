// What every page has: the stream that keeps it up to date, times that pass, and buttons that ask for something. The server sends HTML in
// which everything is escaped; nothing here makes HTML of text.
import { ask, say } from "/assets/ask.mjs";

const body = document.body.dataset;

// List and part names are the server's own; parts remember theirs, because an id of HTML may be in a page once only.
const parts = new Map();
const lists = new Map([...document.querySelectorAll("[data-list]")].map((e) => [e.dataset.list, e]));

function make(html) {
  const t = document.createElement("template");
  t.innerHTML = html;
  return t.content.firstElementChild;
}

// swap puts a new part in the place of an old one, which keeps its own lists, the focus, and what was being typed.
function swap(id, html) {
  const fresh = make(html);
  if (!fresh) return;
  fresh.dataset.part = id;
  fresh.id ||= id;
  const old = parts.get(id);
  parts.set(id, fresh);
  for (const inner of fresh.querySelectorAll("[data-list]")) {
    if (old) inner.replaceChildren(...(lists.get(inner.dataset.list)?.childNodes ?? []));
    lists.set(inner.dataset.list, inner);
  }
  if (!old) return;
  keep(old, fresh);
  old.replaceWith(fresh);
  if (hadFocus) fresh.querySelector(hadFocus)?.focus();
}

let hadFocus = "";
function keep(old, fresh) {
  hadFocus = "";
  const active = document.activeElement;
  if (active && old.contains(active)) {
    if (active.id) hadFocus = "#" + CSS.escape(active.id);
    else if (active.name) hadFocus = `[name="${CSS.escape(active.name)}"]`;
  }
  for (const field of old.querySelectorAll("input, select")) {
    const other = field.name && [...fresh.querySelectorAll("input, select")].find((f) => f.name === field.name);
    if (other && field.type === "checkbox") other.checked = field.checked;
    else if (other && [...(other.options ?? [{ value: field.value }])].some((o) => o.value === field.value)) other.value = field.value;
  }
}

function apply(update) {
  for (const [id, html] of Object.entries(update.parts ?? {})) swap(id, html);
  for (const [name, ids] of Object.entries(update.lists ?? {})) {
    const list = lists.get(name);
    if (!list) continue;
    const wanted = (ids ?? []).map((id) => parts.get(id)).filter(Boolean);
    const stays = new Set(wanted);
    for (const child of [...list.children]) if (!stays.has(child)) child.remove();
    wanted.forEach((part, i) => {
      if (list.children[i] !== part) list.insertBefore(part, list.children[i] ?? null);
    });
  }
  for (const [id, part] of parts) if (!part.isConnected) parts.delete(id);
  tick();
  search();
  document.body.dataset.ready = "yes";
}

let stream;
function follow() {
  if (!body.view) return;
  const query = new URLSearchParams({ view: body.view, namespace: body.namespace, name: body.name });
  stream = new EventSource("/stream?" + query);
  const line = document.getElementById("connection");
  let lostSince = 0;
  let first = true;
  stream.onopen = () => { first = true; };
  stream.onmessage = (e) => {
    if (first && parts.size) { // the server begins with everything: what is not in it is gone
      for (const part of parts.values()) part.remove();
      parts.clear();
    }
    first = false;
    lostSince = 0;
    line.hidden = true;
    apply(JSON.parse(e.data));
  };
  stream.addEventListener("problem", (e) => { line.hidden = false; line.textContent = JSON.parse(e.data); });
  stream.onerror = () => {
    lostSince ||= Date.now();
    line.hidden = false;
    line.textContent = "The connection was lost at " + new Date(lostSince).toLocaleTimeString() + ". What is here is as it was then; it is tried again.";
    if (stream.readyState === EventSource.CLOSED) { // a browser does not try again after an answer that is an error
      setTimeout(follow, 2000);
    }
  };
}

// Times pass in the page, so that nothing has to be sent for it.
function age(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${s % 60}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${Math.floor(s / 60) % 60}m`;
  return `${Math.floor(s / 86400)}d${Math.floor(s / 3600) % 24}h`;
}
function tick() {
  const now = Date.now();
  for (const t of document.querySelectorAll("time[data-since]")) t.textContent = "for " + age(now - Date.parse(t.dataset.since));
  for (const t of document.querySelectorAll("time[data-at]:empty")) t.textContent = new Date(t.dataset.at).toLocaleTimeString();
  for (const t of document.querySelectorAll("time[data-when]:empty")) t.textContent = new Date(t.dataset.when).toLocaleString();
}
setInterval(tick, 1000);

// The search hides what does not have all its words.
const field = document.getElementById("search");
let searched = false;
function search() {
  const words = field?.value.toLowerCase().split(/\s+/).filter(Boolean) ?? [];
  if (!words.length && !searched) return;
  searched = words.length > 0;
  for (const e of document.querySelectorAll("[data-text]")) {
    e.hidden = words.length > 0 && !words.every((w) => e.dataset.text.toLowerCase().includes(w));
  }
}
field?.addEventListener("input", search);

// Buttons and forms that ask something of a machine or a volume.
async function act(element, what, values) {
  if (element.dataset.confirm && !confirm(element.dataset.confirm)) return;
  const to = what ?? `/machines/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}/${element.dataset.act}`;
  const button = element.matches("button") ? element : element.querySelector("button");
  button.disabled = true;
  try {
    say((await ask(to, values)).said);
  } catch (wrong) {
    say(wrong.message, "bad");
  } finally {
    button.disabled = false;
  }
}
document.addEventListener("click", (e) => {
  const button = e.target.closest("button[data-act]");
  if (button) act(button, undefined, { volume: button.dataset.volume, snapshot: button.dataset.snapshot, backup: button.dataset.backup });
});
document.addEventListener("submit", (e) => {
  const form = e.target.closest("form[data-act], form[data-bind]");
  if (!form) return;
  e.preventDefault();
  const values = Object.fromEntries(new FormData(form));
  if ("persist" in values) values.persist = true;
  act(form, form.dataset.bind, values);
});

follow();
const more = { console: "/assets/console.mjs", screen: "/assets/screen.mjs", new: "/assets/new.mjs" }[body.body];
if (more) await import(more);
if (body.view === "volumes") await import("/assets/upload.mjs");
