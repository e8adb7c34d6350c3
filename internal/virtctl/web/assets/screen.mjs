// The machine's screen.
import RFB from "/assets/third_party/novnc/core/rfb.js";

const { namespace, name } = document.body.dataset;
const state = document.getElementById("stream-state");
const target = document.getElementById("screen");

let screen;
function connect() {
  const at = `${location.origin.replace(/^http/, "ws")}/connect/screen/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const socket = new WebSocket(at);
  socket.addEventListener("close", (e) => { if (e.code === 4000) state.textContent = e.reason; });
  screen = new RFB(target, socket);
  screen.scaleViewport = true;
  screen.addEventListener("connect", () => { state.textContent = "connected"; screen.focus(); });
  screen.addEventListener("disconnect", () => {
    if (state.textContent === "connected") state.textContent = "The connection ended; it is tried again.";
    setTimeout(connect, 3000);
  });
}
document.getElementById("ctrl-alt-del").addEventListener("click", () => screen.sendCtrlAltDel());
connect();
