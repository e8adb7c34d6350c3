// Files that are dropped on the page: each becomes a volume, sent by tus, and goes on where it was after the network or the tab went.
import { ask, read, say } from "/assets/ask.mjs";

const drop = document.getElementById("drop");
const list = document.getElementById("uploads");
const dialog = document.getElementById("upload-ask");
const endSize = 256 * 1024; // of a file's beginning and end, in which most images say how large their disk is
const memory = "berth-uploads";

const known = () => JSON.parse(localStorage.getItem(memory) ?? "{}");
function remember(mark, value) {
  const all = known();
  if (value) all[mark] = value;
  else delete all[mark];
  localStorage.setItem(memory, JSON.stringify(all));
}
// markOf is what a file is known again by: another one of the same name, size and time has other ends.
async function markOf(file) {
  const ends = new Blob([file.slice(0, endSize), file.slice(Math.max(0, file.size - endSize))]);
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", await ends.arrayBuffer()));
  return `${file.name}/${file.size}/${file.lastModified}/${[...sum].map((b) => b.toString(16).padStart(2, "0")).join("")}`;
}

// A line of an upload: text is only ever text.
function line(name) {
  const item = document.createElement("li");
  const bar = document.createElement("progress");
  const text = document.createElement("span");
  item.className = "bar";
  bar.max = 100;
  bar.value = 0;
  bar.setAttribute("aria-label", "Upload of " + name);
  text.className = "figures";
  text.setAttribute("role", "status");
  item.append(bar, text);
  list.append(item);
  return {
    item, bar,
    say(what) { text.textContent = `${name}: ${what}`; },
    at(done, all) { bar.value = all ? (done / all) * 100 : 0; },
  };
}

async function base64(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}
const utf8 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// where asks for what the person must say: the volume's name at least.
function where(file, mark) {
  const before = known()[mark];
  const form = dialog.querySelector("form");
  form.elements.namespace.value = before?.namespace ?? (document.body.dataset.home || "default");
  form.elements.name.value = before?.name ?? file.name.toLowerCase().replace(/\.(qcow2|img|raw|iso|vmdk|vdi|vhdx?|gz|xz|zst)$/g, "").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  dialog.querySelector("h2").textContent = before ? `Go on with ${file.name}` : `Upload ${file.name}`;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "go" ? Object.fromEntries(new FormData(form)) : null), { once: true });
  });
}

// place lets the person choose where a held volume is bound.
async function place(row, state) {
  row.say("held: it is bound where the first machine that uses it runs, unless you say where.");
  const form = document.createElement("form");
  const choice = document.createElement("select");
  const button = document.createElement("button");
  form.className = "inline";
  choice.setAttribute("aria-label", "Where to put it");
  button.textContent = "Put it there";
  for (const p of state.places) choice.append(new Option(p.Text, p.Value));
  form.append(choice, button);
  row.item.append(form);
  await new Promise((done) => form.addEventListener("submit", (e) => { e.preventDefault(); done(); }));
  form.remove();
  return choice.value;
}

// ready waits until the volume takes the file. False: it has one already. The person is asked for a place once: if the volume is still held, or
// held again because that node had no room, it is bound there again.
async function ready(row, base) {
  let chosen;
  for (;;) {
    const state = await read(await fetch(base + "/ready"));
    if (state.state === "ready") return true;
    if (state.state === "done") return false;
    if (state.state === "failed") throw new Error(state.why);
    if (state.state === "held") {
      if (chosen) await pause(1000);
      chosen ??= await place(row, state);
      row.say("being bound …");
      await ask(base.replace("/uploads/", "/volumes/") + "/bind", { place: chosen });
    } else row.say("waiting until the cluster takes it" + (state.why ? `: ${state.why}` : ""));
  }
}

const tus = { "Tus-Resumable": "1.0.0" };
class Broken extends Error {} // worth another try

async function begin(file, mark, base) {
  const metadata = `filename ${utf8(file.name)},fingerprint ${utf8(mark)}`;
  const answer = await fetch(base + "/files", { method: "POST", headers: { ...tus, "Upload-Length": file.size, "Upload-Metadata": metadata } });
  if (answer.status !== 201) await fail(answer);
  return answer.headers.get("Location");
}

async function fail(answer) {
  const text = (await answer.text().catch(() => "")).trim() || answer.statusText;
  throw answer.status >= 500 || [401, 408, 423, 429].includes(answer.status) ? new Broken(text) : new Error(text);
}

async function offset(at) {
  const answer = await fetch(at, { method: "HEAD", headers: tus });
  if (!answer.ok) await fail(answer);
  return Number(answer.headers.get("Upload-Offset"));
}

// send sends the rest of a file; XMLHttpRequest because fetch does not say how far it is.
function send(file, at, from, told) {
  return new Promise((done, no) => {
    const request = new XMLHttpRequest();
    request.open("PATCH", at);
    for (const [key, value] of Object.entries({ ...tus, "Upload-Offset": from, "Content-Type": "application/offset+octet-stream" })) request.setRequestHeader(key, value);
    request.upload.onprogress = (e) => told(from + e.loaded);
    request.onerror = () => no(new Broken("the connection was lost"));
    request.onload = () => {
      if (request.status === 204) done();
      else no(request.status >= 500 || [401, 408, 409, 423, 429].includes(request.status) ? new Broken(request.responseText.trim()) : new Error(request.responseText.trim()));
    };
    request.send(file.slice(from));
  });
}

async function upload(file, mark, to) {
  const row = line(to.name);
  const base = `/uploads/${encodeURIComponent(to.namespace)}/${encodeURIComponent(to.name)}`;
  try {
    row.say("asking for a volume …");
    const head = await base64(file.slice(0, endSize));
    const tail = await base64(file.slice(Math.max(0, file.size - endSize)));
    await ask(base, { size: file.size, disk: to.disk, class: to.class, head, tail });
    remember(mark, { namespace: to.namespace, name: to.name, file: file.name });
    if (!(await ready(row, base))) {
      row.at(1, 1);
      row.say("it has its data already.");
      remember(mark);
      return;
    }
    await transfer(row, base, file, mark);
    row.at(1, 1);
    row.say("sent; the cluster makes a disk of it.");
    remember(mark);
  } catch (wrong) {
    row.say(wrong.message);
    row.item.classList.add("bad-text");
  }
}

// transfer sends the file, and goes on where the server is after whatever happens on the way.
async function transfer(row, base, file, mark) {
  let at;
  let started;
  for (let wait = 1000; ; wait = Math.min(wait * 2, 30000)) {
    try {
      at ??= await begin(file, mark, base);
      const from = await offset(at);
      started = { time: performance.now(), from };
      row.at(from, file.size);
      await send(file, at, from, (done) => {
        const each = (done - started.from) / Math.max(1, performance.now() - started.time); // kB/s
        row.at(done, file.size);
        row.say(`${Math.floor((done / file.size) * 100)} %, ${(each / 1000).toFixed(1)} MB/s, ${Math.ceil((file.size - done) / Math.max(1, each) / 1000)} s left`);
        wait = 1000;
      });
      return;
    } catch (wrong) {
      if (!(wrong instanceof Broken) && !(wrong instanceof TypeError)) throw wrong; // TypeError: fetch found no server
      row.say(`${wrong.message}; it goes on in ${Math.round(wait / 1000)} s`);
      await pause(wait);
    }
  }
}

// take asks about one file after the other, also if more are dropped meanwhile: a dialog says that it was closed a moment after it is.
let asked = Promise.resolve();
function take(files) {
  for (const file of files) {
    asked = asked.then(async () => {
      const mark = await markOf(file);
      const to = await where(file, mark);
      if (to) upload(file, mark, to);
    }).catch((wrong) => say(wrong.message, "bad"));
  }
}

addEventListener("dragover", (e) => { e.preventDefault(); drop.classList.add("over"); });
addEventListener("dragleave", () => drop.classList.remove("over"));
addEventListener("drop", (e) => { e.preventDefault(); drop.classList.remove("over"); take([...e.dataTransfer.files]); });
document.getElementById("file").addEventListener("change", (e) => { take([...e.target.files]); e.target.value = ""; });

for (const [mark, u] of Object.entries(known())) {
  const row = line(u.name);
  row.say(`the upload of ${u.file} did not end: drop the file again to go on where it was.`);
  const forget = document.createElement("button");
  forget.textContent = "Forget it";
  forget.className = "small";
  forget.addEventListener("click", () => { remember(mark); row.item.remove(); say("Forgotten."); });
  row.item.append(forget);
}
