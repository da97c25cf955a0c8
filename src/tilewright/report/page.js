"use strict";
// The page's own script: words about what is pointed at, marks, the timeline, the table's order.
// Whatever comes from a model is put into the page as text, never as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const items = new Map(data.items.map((item) => [item.id, item]));
const tip = document.getElementById("tip");
const details = document.getElementById("details");
let marked = null;

// ---------------------------------------------------------------- words

function digits(x) {
  if (x === 0) return "0";
  return Math.abs(x) >= 999.5 ? x.toFixed(0) : String(Number(x.toPrecision(3)));
}
function scaled(x, units) {
  for (const [unit, size] of units) if (Math.abs(x) >= 0.9995 * size) return `${digits(x / size)} ${unit}`;
  const [unit, size] = units[units.length - 1];
  return `${digits(x / size)} ${unit}`;
}
const duration = (ns) => scaled(ns, [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]]);
const amount = (x, unit) => scaled(x, [[`T${unit}`, 1e12], [`G${unit}`, 1e9], [`M${unit}`, 1e6], [`k${unit}`, 1e3], [unit, 1]]);
const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;

function facts(item) {
  const rows = [["runs on", item.device], ["takes", duration(item.ns)]];
  if (item.cycles !== null) rows.push(["cycles", `${item.cycles.toLocaleString("en")}, by the chip's timed simulator`]);
  if (item.kind !== "wait") rows.push(["of the call", percent(item.ns / data.total)]);
  if (item.least !== null) {
    rows.push(["at least", `${duration(item.least)}: ${item.limit}`]);
    if (item.ns > 0) rows.push(["of that bound", percent(item.least / item.ns)]);
  }
  if (item.model !== null) rows.push(["expected", `${duration(item.model)}, by the model that chose the tiles`]);
  if (item.operations) {
    rows.push(["operations", amount(item.operations, "op")]);
    if (item.ns > 0) rows.push(["rate", amount(item.operations / item.ns * 1e9, "op/s")]);
  }
  if (item.bytes) rows.push([item.kind === "submit" && data.simulated ? "bytes moved" : "bytes", amount(item.bytes, "B")]);
  if (item.kind === "submit" && item.here !== null && data.simulated) rows.push(["simulated in", duration(item.here)]);
  if (item.nodes.length) rows.push(["nodes", item.nodes.join(", ")]);
  if (item.kernel) rows.push(["kernel", item.kernel]);
  for (const why of item.why) rows.push(["no device", why]);
  if (item.fallback) rows.push(["plain schedule", item.fallback]);
  return rows;
}
function fill(place, title, rows) {
  place.replaceChildren();
  const head = document.createElement("h3");
  head.textContent = title;
  const list = document.createElement("dl");
  for (const [name, value] of rows) {
    const [dt, dd] = [document.createElement("dt"), document.createElement("dd")];
    dt.textContent = name;
    dd.textContent = value;
    list.append(dt, dd);
  }
  place.append(head, list);
}
const heading = (item) => `${item.id} · ${item.title}`;

// ---------------------------------------------------------------- pointing and marking

function showTip(event, title, rows) {
  fill(tip, title, rows);
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 6))}px`;
}
function itemAt(event) {
  const element = event.target instanceof Element && event.target.closest("[data-item]");
  return element ? items.get(element.dataset.item) : undefined;
}
function longest() {
  const whole = data.items.filter((i) => i.kind !== "wait" && !i.pieces).sort((a, b) => b.ns - a.ns).slice(0, 12);
  const [head, list] = [document.createElement("h3"), document.createElement("table")];
  head.textContent = "What takes longest";
  for (const item of whole) {
    const row = list.insertRow();
    row.dataset.item = item.id;
    for (const text of [heading(item), item.device, duration(item.ns), percent(item.ns / data.total)]) row.insertCell().textContent = text;
  }
  const hint = document.createElement("p");
  hint.textContent = "Click a box, a bar, a dot or a row: what it is, what it takes, and why, then stands here.";
  details.replaceChildren(head, list, hint);
}
function mark(item) {
  marked = item;
  for (const old of document.querySelectorAll(".marked")) old.classList.remove("marked");
  for (const element of document.querySelectorAll("[data-item]"))
    if (element.dataset.item === item.id) element.classList.add("marked");
  fill(details, heading(item), facts(item));
  document.querySelector('[data-zoom="marked"]').disabled = false;
  draw();
}
document.addEventListener("mousemove", (event) => {
  if (event.target === canvas) return;
  const item = itemAt(event);
  if (item) showTip(event, heading(item), facts(item));
  else tip.hidden = true;
});
document.addEventListener("click", (event) => {
  const item = itemAt(event);
  if (item) mark(item);
});
document.addEventListener("keydown", (event) => {
  const item = event.key === "Enter" ? itemAt(event) : undefined;
  if (item) mark(item);
});

// ---------------------------------------------------------------- the timeline

const canvas = document.getElementById("timeline");
const LABELS = 132, ROW = 32, TOP = 24, QUEUE = 20;
const heights = data.rows.map((row) => (row.queue ? QUEUE : ROW));
const tops = heights.map((_, k) => TOP + heights.slice(0, k).reduce((a, b) => a + b, 0));
const height = TOP + heights.reduce((a, b) => a + b, 0) + 6;
let view = [0, Math.max(data.total, 1)];
const style = getComputedStyle(document.documentElement);
const colour = (name) => style.getPropertyValue(`--${name}`);

const groups = []; // row, instruction, how many, begin, end, share of the time that the queue works, run
for (const run of data.runs)
  for (const id of run.items) {
    const item = items.get(id);
    let at = 0;
    for (let k = 0; k < run.groups.length; k += 6) {
      const [queue, instruction, count, step, length, busy] = run.groups.slice(k, k + 6);
      at += step;
      const begin = item.begin + at * run.cycle;
      groups.push({row: run.rows[queue], name: run.instructions[instruction], count, begin,
        end: begin + length * run.cycle, first: at, last: at + length, share: length ? Math.min(1, busy / length) : 1, item});
    }
  }

const width = () => canvas.clientWidth;
const place = (time) => LABELS + (time - view[0]) / (view[1] - view[0]) * (width() - LABELS - 8);
const timeAt = (x) => view[0] + (x - LABELS) / (width() - LABELS - 8) * (view[1] - view[0]);

function draw() {
  const ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width() * ratio);
  canvas.height = Math.round(height * ratio);
  const c = canvas.getContext("2d");
  c.scale(ratio, ratio);
  c.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  drawAxis(c);
  c.save();
  c.beginPath();
  c.rect(LABELS, 0, width() - LABELS, height);
  c.clip();
  for (const group of groups) drawGroup(c, group);
  for (const item of data.items) drawItem(c, item);
  c.restore();
}
function drawAxis(c) {
  const room = (view[1] - view[0]) / Math.max(1, (width() - LABELS) / 110);
  const power = 10 ** Math.floor(Math.log10(room));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= room);
  for (let t = Math.ceil(view[0] / step) * step; t <= view[1]; t += step) {
    c.fillStyle = "#e4e4e4";
    c.fillRect(place(t), TOP - 4, 1, height);
    c.fillStyle = "#555";
    const words = t === 0 ? "0" : duration(Math.round(t * 1e6) / 1e6);
    if (place(t) + 3 + c.measureText(words).width < width()) c.fillText(words, place(t) + 3, 14);
  }
  data.rows.forEach((row, k) => {
    c.fillStyle = "#e9e9e9";
    c.fillRect(0, tops[k], width(), 1);
    c.fillStyle = row.queue ? "#555" : "#1c1c1c";
    c.fillText(row.label, row.queue ? 18 : 6, tops[k] + heights[k] / 2 + 4, LABELS - 20);
  });
}
function drawItem(c, item) {
  const x = place(item.begin), w = Math.max(place(item.begin + item.ns) - x, 0.8), y = tops[item.row] + 3;
  if (item.kind === "submit" && item.pieces) {
    drawModel(c, item, x, y);
    if (marked === item) outline(c, x, y, w, 24);
    return;
  }
  if (x > width() || x + w < LABELS || item.ns <= 0) return;
  const name = data.rows[item.row].colour;
  c.fillStyle = item.kind === "wait" ? "#fff" : colour(name.replace("d", "l").replace("copy", "lcopy"));
  c.fillRect(x, y, w, 16);
  c.strokeStyle = colour(name);
  c.lineWidth = item.kind === "wait" ? 0.5 : 1;
  if (w > 2) c.strokeRect(x + 0.5, y + 0.5, w - 1, 15);
  else if (item.kind !== "wait") {
    c.fillStyle = colour(name);
    c.fillRect(x, y, w, 16);
  }
  write(c, item.kind === "wait" ? "waits" : item.title, x, y + 12, w, "#1c1c1c");
  if (item.least !== null) {
    c.fillStyle = colour(name);
    c.fillRect(x, y + 17, Math.max(place(item.begin + Math.min(item.least, item.ns)) - x, 0.8), 4);
  }
  drawModel(c, item, x, y);
  if (marked === item) outline(c, x, y, w, 16);
}
function drawModel(c, item, x, y) {
  if (item.model === null) return;
  c.strokeStyle = colour(data.rows[item.row].colour);
  c.lineWidth = 1;
  c.strokeRect(x + 0.5, y + 22.5, Math.max(place(item.begin + item.model) - x - 1, 1), 3);
}
function drawGroup(c, group) {
  const x = place(group.begin), w = Math.max(place(group.end) - x, 0.6);
  if (x > width() || x + w < LABELS) return;
  const y = tops[group.row] + 2;
  c.fillStyle = colour(data.rows[group.row].colour);
  c.globalAlpha = 0.25 + 0.6 * group.share;
  c.fillRect(x, y, w > 3 ? w - 0.6 : w, QUEUE - 4);
  c.globalAlpha = 1;
  write(c, group.name + (group.count > 1 ? ` × ${group.count}` : ""), x, y + 12, w, group.share > 0.5 ? "#fff" : "#1c1c1c");
}
function write(c, text, x, y, w, ink) {
  const from = Math.max(x, LABELS), room = Math.min(x + w, width()) - from - 6;
  if (room < 24) return;
  let shown = text;
  while (shown.length > 1 && c.measureText(shown).width > room) shown = shown.slice(0, Math.min(shown.length - 1, Math.ceil(shown.length * 0.9))).trimEnd();
  if (shown.length < Math.min(3, text.length)) return;
  c.fillStyle = ink;
  c.fillText(shown === text ? text : `${shown.slice(0, -1)}…`, from + 3, y);
}
function outline(c, x, y, w, h) {
  c.strokeStyle = colour("mark");
  c.lineWidth = 3;
  c.strokeRect(x - 1, y - 1, w + 2, h + 2);
}
function look(begin, end) {
  const least = Math.max(data.total / 2e5, 1e-3), length = Math.min(Math.max(end - begin, least), Math.max(data.total, 1));
  const first = Math.min(Math.max(begin, 0), Math.max(data.total, 1) - length);
  view = [first, first + length];
  draw();
}
function zoom(factor, around) {
  const t = around ?? (view[0] + view[1]) / 2;
  look(t - (t - view[0]) * factor, t + (view[1] - t) * factor);
}
function under(event) {
  const y = event.offsetY, t = timeAt(event.offsetX), near = (view[1] - view[0]) / width() * 2;
  const row = data.rows.findIndex((_, k) => y >= tops[k] && y < tops[k] + heights[k]);
  if (row < 0 || event.offsetX < LABELS) return null;
  const hit = (begin, end) => t >= begin - near && t <= end + near;
  const group = groups.findLast((g) => g.row === row && hit(g.begin, g.end));
  const found = data.items.filter((i) => i.row === row && i.ns > 0 && hit(i.begin, i.begin + i.ns));
  const item = found.findLast((i) => !i.pieces && t >= i.begin && t <= i.begin + i.ns) ?? found[found.length - 1];
  return {group, item};
}
canvas.addEventListener("mousemove", (event) => {
  if (drag) {
    const moved = (drag.x - event.offsetX) / (width() - LABELS - 8) * (drag.view[1] - drag.view[0]);
    drag.far ||= Math.abs(drag.x - event.offsetX) > 3;
    look(drag.view[0] + moved, drag.view[1] + moved);
    tip.hidden = true;
    return;
  }
  const found = under(event);
  if (found?.group) {
    const g = found.group, queue = data.rows[g.row].label, during = (i) => i.begin <= g.begin && g.begin < i.begin + i.ns;
    const piece = data.items.find((i) => i.kind === "piece" && i.row === g.item.row && during(i)) ?? g.item;
    showTip(event, `${queue}: ${g.name}${g.count > 1 ? " and others" : ""}`, [
      ["instructions", g.count.toLocaleString("en")], ["takes", duration(g.end - g.begin)],
      ["cycles", `${g.first.toLocaleString("en")} to ${g.last.toLocaleString("en")} of the kernel`],
      ["queue works", percent(g.share)], ["while", heading(piece)]]);
  } else if (found?.item) showTip(event, heading(found.item), facts(found.item));
  else tip.hidden = true;
});
canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
let drag = null;
canvas.addEventListener("mousedown", (event) => { drag = {x: event.offsetX, view: [...view], far: false}; });
addEventListener("mouseup", (event) => {
  const click = drag && !drag.far && event.target === canvas;
  drag = null;
  const found = click ? under(event) : null;
  const item = found?.item ?? found?.group?.item;
  if (item) mark(item);
});
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 0.8 : 1.25, timeAt(event.offsetX));
}, {passive: false});
canvas.addEventListener("keydown", (event) => {
  const part = (view[1] - view[0]) / 8;
  if (event.key === "+") zoom(0.5);
  else if (event.key === "-") zoom(2);
  else if (event.key === "ArrowLeft") look(view[0] - part, view[1] - part);
  else if (event.key === "ArrowRight") look(view[0] + part, view[1] + part);
});
for (const button of document.querySelectorAll("[data-zoom]"))
  button.addEventListener("click", () => {
    const how = button.dataset.zoom;
    if (how === "marked") {
      const room = Math.max(marked.ns * 0.1, 1);
      look(marked.begin - room, marked.begin + marked.ns + room);
    } else if (how === "0") look(0, data.total);
    else zoom(Number(how));
  });
addEventListener("resize", draw);
longest();
draw();

// ---------------------------------------------------------------- the table

const table = document.getElementById("steps");
[...table.tHead.rows[0].cells].forEach((head, column) => {
  head.firstChild.addEventListener("click", () => {
    const isNumber = head.classList.contains("n");
    const was = head.getAttribute("aria-sort");
    const up = was ? was === "descending" : !isNumber || column === 0;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => isNumber ? Number(row.cells[column].dataset.v ?? "NaN") : row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (isNumber && (Number.isNaN(x) || Number.isNaN(y))) return Number.isNaN(x) - Number.isNaN(y);
      return (up ? 1 : -1) * (isNumber ? x - y : x.localeCompare(y, "en", {numeric: true}));
    });
    table.tBodies[0].append(...rows);
  });
});
