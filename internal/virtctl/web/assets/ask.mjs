// Requests to the server that the page is from, and to no other.

export async function ask(path, values) {
  const answer = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(values ?? {}),
  });
  return read(answer);
}

export async function read(answer) {
  const text = await answer.text();
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    said = { error: text };
  }
  if (!answer.ok) throw new Error(said.error || answer.statusText);
  return said;
}

let timer;
export function say(text, tone) {
  const line = document.getElementById("said");
  line.textContent = text;
  line.className = tone ?? "";
  line.hidden = false;
  clearTimeout(timer);
  if (!tone) timer = setTimeout(() => { line.hidden = true; }, 8000);
}
