// The machine's serial console.
import { Terminal } from "/assets/third_party/xterm/xterm.mjs";
import { FitAddon } from "/assets/third_party/xterm/addon-fit.mjs";

const { namespace, name, nonce } = document.body.dataset;
const state = document.getElementById("stream-state");

// xterm.js makes style elements, which the page's policy takes only with its nonce.
const create = document.createElement;
document.createElement = function (tag, options) {
  const element = create.call(document, tag, options);
  if (tag.toLowerCase() === "style") element.nonce = nonce;
  return element;
};

const terminal = new Terminal({ convertEol: false, cursorBlink: true, screenReaderMode: true, scrollback: 5000 });
const fit = new FitAddon();
terminal.loadAddon(fit);
terminal.open(document.getElementById("terminal"));
fit.fit();
addEventListener("resize", () => fit.fit());
globalThis.berthTerminal = terminal; // for tests, which read what it shows

terminal.attachCustomKeyEventHandler((e) => {
  if (e.ctrlKey && e.key === "]") {
    if (e.type === "keydown") document.querySelector("header a").focus();
    return false;
  }
  return true;
});

const words = new TextEncoder();
let socket;
function connect() {
  socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/connect/console/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => { state.textContent = "connected"; terminal.focus(); };
  socket.onmessage = (e) => terminal.write(new Uint8Array(e.data));
  socket.onclose = (e) => {
    state.textContent = e.code === 4000 ? e.reason : "The connection ended; it is tried again.";
    setTimeout(connect, 3000);
  };
}
terminal.onData((text) => { if (socket.readyState === WebSocket.OPEN) socket.send(words.encode(text)); });
connect();
