// The form of a new machine, with the manifest that it makes.
import { ask, say } from "/assets/ask.mjs";

const form = document.getElementById("new");
const shown = document.getElementById("manifest");
const wrong = document.getElementById("new-wrong");

function values() {
  const all = Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.trim()]));
  all.start = form.elements.start.checked;
  return all;
}

function offer() {
  for (const label of form.querySelectorAll("[data-for]")) {
    label.hidden = !label.dataset.for.split(" ").includes(form.elements.source.value);
  }
}

let turn = 0;
async function write() {
  offer();
  const mine = ++turn;
  if (!form.elements.name.value) {
    shown.textContent = "";
    wrong.textContent = "";
    return;
  }
  try {
    const { manifest } = await ask("/new/manifest", values());
    if (mine === turn) { shown.textContent = manifest; wrong.textContent = ""; }
  } catch (e) {
    if (mine === turn) { shown.textContent = ""; wrong.textContent = e.message; }
  }
}

form.addEventListener("input", write);
form.addEventListener("submit", async (e) => {
  e.preventDefault();
  try {
    location.href = (await ask("/new", values())).at;
  } catch (no) {
    wrong.textContent = no.message;
  }
});
document.getElementById("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(shown.textContent);
  say("The manifest is in the clipboard.");
});
write();
