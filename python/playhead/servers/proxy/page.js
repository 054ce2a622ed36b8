"use strict";
// Strings of servers become text nodes only; nothing here parses HTML.
const at = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=token]").content;

function element(name, text, parts = []) {
  const made = document.createElement(name);
  if (text) made.append(document.createTextNode(text));
  made.append(...parts);
  return made;
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

function problem(text) {
  at("problem").textContent = text;
  at("problem").hidden = !text;
}

async function control(tool, values = {}) {
  const answer = await fetch("/control", {
    method: "POST",
    headers: { "X-Playhead-Token": token, "Content-Type": "application/json" },
    body: JSON.stringify({ tool, arguments: values }),
  });
  problem(answer.ok ? "" : (await answer.text()) || "That is not possible now.");
}

function listen(address, title) {
  at("listen-title").textContent = title;
  at("audio").src = address;
  at("audio").play().catch(() => at("audio").focus());
}

function update(id, items) {
  // Rebuilt only after a change, so that the keyboard's focus stays.
  const key = id + JSON.stringify(items.map((item) => item.textContent));
  if (at(id).dataset.key === key) return;
  at(id).dataset.key = key;
  at(id).replaceChildren(...items);
}

function result(each) {
  const title = `${each.tool} of ${each.server}`;
  const buttons = each.audio.map((address, number) => {
    const button = element("button", "Listen here");
    button.type = "button";
    button.setAttribute("aria-label", `Listen here: ${title}, ${number + 1}`);
    button.addEventListener("click", () => listen(address, title));
    return button;
  });
  return element("li", "", [element("strong", title), element("p", each.text), ...buttons]);
}

function show(state) {
  const plays = state.status === "playing" || state.status === "buffering";
  const title = state.title ? `${state.title} (${state.status})` : "Nothing yet";
  if (at("title").textContent !== title) at("title").textContent = title;
  const parts = state.title ? [clock(state.position), state.duration ? clock(state.duration) : ""] : [];
  at("time").textContent = parts.filter(Boolean).join(" of ");
  at("progress").value = state.duration ? Math.min(1, state.position / state.duration) : 0;
  const toggle = at("toggle");
  toggle.dataset.tool = plays ? "pause" : "resume";
  if (toggle.textContent !== (plays ? "Pause" : "Resume")) toggle.textContent = plays ? "Pause" : "Resume";
  if (document.activeElement !== at("volume")) at("volume").value = state.volume ?? 100;
  update("queue", state.queue.map((name, index) => {
    const item = element("li", name);
    if (index === state.index) item.setAttribute("aria-current", "true");
    return item;
  }));
  update("results", state.results.map(result));
  if (state.error) problem(state.error);
}

for (const button of document.querySelectorAll("[data-tool]")) {
  button.addEventListener("click", () => control(button.dataset.tool));
}
at("volume").addEventListener("change", (event) => {
  control("set_volume", { volume: Number(event.target.value) });
});
const events = new EventSource("/events");
events.addEventListener("message", (event) => show(JSON.parse(event.data)));
events.addEventListener("error", () => problem("The proxy cannot be reached; trying again."));
events.addEventListener("open", () => problem(""));
