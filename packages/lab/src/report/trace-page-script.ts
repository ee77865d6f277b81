// Style and script of the trace page; they run in the browser without a network. Rows are sorted and free of overlaps: drawing
// jumps from pixel to pixel by binary search, so that its cost depends on the width of the window, not on the number of events.

export const tracePageStyle = `
:root { color-scheme: light dark; --ink: #111827; --soft: #4b5563; --line: #d1d5db; --paper: #ffffff; --panel: #f3f4f6; --high: #b91c1c; --moderate: #b45309; --select: #1d4ed8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e7eb; --soft: #9ca3af; --line: #374151; --paper: #0f172a; --panel: #1e293b; --high: #f87171; --moderate: #fbbf24; --select: #60a5fa; } }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 14px/1.45 "DejaVu Sans", Verdana, system-ui, sans-serif; }
header, main > section { padding: 0.5rem 1rem; } h1 { font-size: 1.15rem; margin: 0.25rem 0; } h2 { font-size: 1rem; margin: 0.5rem 0; }
#cards { display: flex; flex-wrap: wrap; gap: 0.5rem; } .card { text-align: left; font: inherit; color: inherit; flex: 1 1 20rem; max-width: 34rem; background: var(--panel); border: 1px solid var(--line); border-left: 5px solid var(--moderate); padding: 0.5rem 0.75rem; cursor: pointer; display: flex; flex-direction: column; align-items: flex-start; } #problems { margin: 0.5rem 0 0; padding-left: 1.2rem; color: var(--soft); }
.card.high { border-left-color: var(--high); } .card b { display: block; } .card small { color: var(--soft); display: block; margin-top: 0.25rem; } .card:focus-visible { outline: 2px solid var(--select); }
#view { position: relative; border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); min-height: 12rem; outline: none; } #view:focus-visible { box-shadow: inset 0 0 0 2px var(--select); }
canvas { position: absolute; inset: 0; width: 100%; height: 100%; }
#bar { display: flex; flex-wrap: wrap; gap: 1rem; align-items: center; padding: 0.35rem 1rem; background: var(--panel); } #bar input { font: inherit; padding: 0.15rem 0.4rem; } #detail { min-height: 1.5em; overflow-wrap: anywhere; flex: 1; }
.legend span { display: inline-block; margin-right: 0.8rem; white-space: nowrap; } .legend i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.3em; vertical-align: -0.05em; }
.scroll { overflow: auto; max-height: 70vh; } header .scroll { max-height: 30vh; } thead { position: sticky; top: 0; background: var(--paper); } table { border-collapse: collapse; font-size: 0.85rem; } th, td { text-align: right; padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--line); white-space: nowrap; } th { color: var(--soft); font-weight: normal; } th:first-child, td:first-child { text-align: left; max-width: 44rem; overflow: hidden; text-overflow: ellipsis; }
h3 { font-size: 0.9rem; margin: 0.5rem 0; } .columns { display: flex; flex-wrap: wrap; gap: 2rem; } #operators p { max-width: 70rem; } #operators > .scroll td:last-child, #operators > .scroll th:last-child { text-align: left; max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
#roofline { width: 100%; max-width: 60rem; height: auto; font-size: 11px; } #roofline text { fill: var(--soft); } #roofline .grid { stroke: var(--line); stroke-width: 0.5; } #roofline .roof { fill: none; stroke: var(--ink); stroke-width: 1.5; } #roofline .dot { fill: var(--select); fill-opacity: 0.55; stroke: var(--select); } #roofline .dot:focus-visible { stroke: var(--high); stroke-width: 3; outline: none; } #roofline .name { fill: var(--ink); }
kbd { border: 1px solid var(--line); border-radius: 3px; padding: 0 0.3em; background: var(--paper); font: 0.85em "DejaVu Sans Mono", monospace; }
`;

export const tracePageScript = `
(function () {
  var meta = JSON.parse(document.getElementById("meta").textContent);
  function bytes(id) {
    var text = document.getElementById(id).textContent, raw = atob(text), out = new Uint8Array(raw.length);
    for (var i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out.buffer;
  }
  var start = new Uint32Array(bytes("starts")), duration = new Uint32Array(bytes("durations")), name = new Uint32Array(bytes("nameIds")), kind = new Uint8Array(bytes("kinds"));
  var tick = meta.tick, span = meta.span, rows = meta.rows, canvas = document.getElementById("canvas"), view = document.getElementById("view"), detail = document.getElementById("detail");
  var dark = matchMedia("(prefers-color-scheme: dark)");
  var light = ["#dc2626", "#d97706", "#2563eb", "#854d0e", "#64748b", "#9d174d", "#c026d3", "#7c3aed", "#0f766e", "#fca5a5", "#fde68a", "#d1d5db"];
  var night = ["#f87171", "#fbbf24", "#60a5fa", "#d6b48a", "#7f8ea3", "#f9a8d4", "#e879f9", "#a78bfa", "#2dd4bf", "#7f1d1d", "#78350f", "#374151"];
  var left = 170, rowHeight = 18, top0 = 24;
  var from = 0, to = span, scroll = 0, selected = null, found = [], foundAt = -1, pending = false, frames = 0;
  function colors() { return dark.matches ? night : light; }
  function css(variable) { return getComputedStyle(document.body).getPropertyValue(variable).trim(); }
  function timeText(ns) { var a = Math.abs(ns); return a >= 1e9 ? (ns / 1e9).toPrecision(4) + " s" : a >= 1e6 ? (ns / 1e6).toPrecision(4) + " ms" : a >= 1e3 ? (ns / 1e3).toPrecision(4) + " us" : Math.round(ns) + " ns"; }
  function shortened(text, wide, g) { if (g.measureText(text).width <= wide) return text; while (text.length > 1 && g.measureText(text + "\\u2026").width > wide) text = text.slice(0, -1); return text + "\\u2026"; }
  /* First event of a row that ends after a time. */
  function firstAfter(row, t) { var low = row.at, high = row.at + row.count; while (low < high) { var m = (low + high) >> 1; if ((start[m] + duration[m]) * tick <= t) low = m + 1; else high = m; } return low; }
  function schedule() { if (!pending) { pending = true; requestAnimationFrame(draw); } }
  function size() { var r = devicePixelRatio || 1, w = view.clientWidth, h = view.clientHeight; if (canvas.width !== Math.round(w * r) || canvas.height !== Math.round(h * r)) { canvas.width = Math.round(w * r); canvas.height = Math.round(h * r); } return [w, h, r]; }
  function xOf(t, w) { return left + ((t - from) / (to - from)) * (w - left); }
  function yOf(index) { return top0 + index * rowHeight - scroll; }
  function draw() {
    pending = false;
    var s = size(), w = s[0], h = s[1], g = canvas.getContext("2d"), palette = colors(), ink = css("--ink"), soft = css("--soft"), line = css("--line"), paper = css("--paper");
    g.setTransform(s[2], 0, 0, s[2], 0, 0); g.fillStyle = paper; g.fillRect(0, 0, w, h); g.font = "12px 'DejaVu Sans', Verdana, sans-serif"; g.textBaseline = "middle";
    var perPixel = (to - from) / (w - left), drawn = 0;
    for (var i = 0; i < rows.length; i++) {
      var y = yOf(i); if (y + rowHeight < top0 || y > h) continue;
      var row = rows[i];
      if (row.first) { g.strokeStyle = line; g.beginPath(); g.moveTo(0, y + 0.5); g.lineTo(w, y + 0.5); g.stroke(); }
      var last = row.at + row.count, e = firstAfter(row, from);
      while (e < last && start[e] * tick < to) {
        var a = Math.max(left, xOf(start[e] * tick, w)), b = xOf((start[e] + duration[e]) * tick, w), wide = Math.max(1, Math.min(b, w) - a);
        g.fillStyle = palette[kind[e]]; g.fillRect(a, y + 2, wide, rowHeight - 4); drawn++;
        if (selected === e) { g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(a, y + 1, wide, rowHeight - 2); g.lineWidth = 1; }
        if (wide > 46) { g.fillStyle = dark.matches && kind[e] < 9 ? "#0b1020" : kind[e] >= 9 ? ink : "#ffffff"; g.save(); g.beginPath(); g.rect(a, y, wide - 2, rowHeight); g.clip(); g.fillText(meta.names[name[e]], a + 3, y + rowHeight / 2); g.restore(); }
        /* The next event that reaches beyond this pixel. */
        var edge = from + (Math.floor(Math.max(b, a + 1) - left) ) * perPixel, next = e + 1;
        if (next < last && (start[next] + duration[next]) * tick <= edge) next = Math.max(next, firstAfter(row, edge));
        e = next;
      }
      g.fillStyle = paper; g.fillRect(0, y + 1, left - 4, rowHeight - 1); g.fillStyle = row.first ? ink : soft; g.save(); g.beginPath(); g.rect(0, y, left - 6, rowHeight); g.clip(); g.fillText(shortened((row.first ? "rank " + row.rank + "  " : "") + row.label, left - 14, g), 6, y + rowHeight / 2); g.restore();
    }
    g.fillStyle = paper; g.fillRect(0, 0, w, top0 - 2); g.fillStyle = soft; g.strokeStyle = line;
    var step = Math.pow(10, Math.floor(Math.log10(Math.max(1, (to - from) / 4)))); if ((to - from) / step > 20) step *= 5; else if ((to - from) / step > 8) step *= 2; if ((to - from) / step > (w - left) / 70) step *= 5;
    for (var t = Math.ceil(from / step) * step; t <= to; t += step) { var x = xOf(t, w); g.beginPath(); g.moveTo(x + 0.5, top0 - 6); g.lineTo(x + 0.5, top0 - 2); g.stroke(); g.fillText(timeText(t), x + 3, top0 / 2); }
    links(g, w, ink);
    frames++; document.body.dataset.view = Math.round(from) + " " + Math.round(to); document.body.dataset.drawn = drawn; document.body.dataset.frames = frames;
    if (frames === 1) document.body.dataset.firstPicture = Math.round(performance.now());
  }
  function rowOf(e) { for (var i = 0; i < rows.length; i++) if (e >= rows[i].at && e < rows[i].at + rows[i].count) return i; return -1; }
  /* The same collective on other ranks: same name, same number among the events of that name. */
  function partners(e) {
    if (kind[e] !== 0) return [];
    var own = rows[rowOf(e)], number = 0, list = [];
    for (var i = own.at; i < e; i++) if (name[i] === name[e]) number++;
    rows.forEach(function (row, index) { if (row.rank === own.rank) return; var k = 0; for (var i = row.at; i < row.at + row.count; i++) if (kind[i] === 0 && name[i] === name[e] && k++ === number) { list.push([index, i]); break; } });
    return list;
  }
  function links(g, w, ink) {
    document.body.dataset.linked = selected === null ? 0 : partners(selected).length;
    if (selected === null) return;
    var mine = rowOf(selected); g.strokeStyle = ink; g.setLineDash([4, 3]);
    partners(selected).forEach(function (p) { g.beginPath(); g.moveTo(xOf((start[selected] + duration[selected]) * tick, w), yOf(mine) + rowHeight / 2); g.lineTo(xOf((start[p[1]] + duration[p[1]]) * tick, w), yOf(p[0]) + rowHeight / 2); g.stroke(); });
    g.setLineDash([]);
  }
  function set(a, b) { var wide = Math.min(span, Math.max(50, b - a)); a = Math.max(0, Math.min(span - wide, a)); from = a; to = a + wide; schedule(); }
  function zoom(factor, at) { var c = at === undefined ? (from + to) / 2 : at; set(c - (c - from) * factor, c + (to - c) * factor); }
  function scrollTo(index) { var h = view.clientHeight; if (yOf(index) < top0 || yOf(index) + rowHeight > h) scroll = Math.max(0, index * rowHeight - h / 2); }
  function select(e) { selected = e; if (e === null) { detail.textContent = ""; } else { var row = rows[rowOf(e)]; detail.textContent = meta.names[name[e]] + " - " + meta.kinds[kind[e]] + ", rank " + row.rank + ", " + timeText(duration[e] * tick) + " at " + timeText(start[e] * tick); } schedule(); }
  function focusOn(e) { var d = Math.max(1000, duration[e] * tick); scrollTo(rowOf(e)); set(start[e] * tick - d, start[e] * tick + 2 * d); select(e); }
  function search(text, direction) {
    if (text !== search.text) { search.text = text; found = []; foundAt = -1; var ids = {}; meta.names.forEach(function (n, i) { if (n.toLowerCase().indexOf(text.toLowerCase()) >= 0) ids[i] = true; }); for (var i = 0; i < name.length && found.length < 100000; i++) if (ids[name[i]]) found.push(i); }
    if (found.length === 0) { detail.textContent = "nothing found for " + text; return; }
    foundAt = (foundAt + direction + found.length) % found.length; focusOn(found[foundAt]);
    detail.textContent = (foundAt + 1) + " of " + found.length + ": " + detail.textContent;
  }
  var box = document.getElementById("search");
  box.addEventListener("keydown", function (event) { if (event.key === "Enter") { search(box.value, event.shiftKey ? -1 : 1); event.preventDefault(); } if (event.key === "Escape") view.focus(); event.stopPropagation(); });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    var wide = to - from, k = event.key.toLowerCase();
    if (k === "w") zoom(0.7); else if (k === "s") zoom(1 / 0.7); else if (k === "a" || k === "arrowleft") set(from - wide * 0.15, to - wide * 0.15); else if (k === "d" || k === "arrowright") set(from + wide * 0.15, to + wide * 0.15);
    else if (k === "arrowdown") { scroll = Math.min(Math.max(0, rows.length * rowHeight - view.clientHeight + top0), scroll + 3 * rowHeight); schedule(); } else if (k === "arrowup") { scroll = Math.max(0, scroll - 3 * rowHeight); schedule(); }
    else if (k === "f" && selected !== null) focusOn(selected); else if (k === "0") set(0, span); else if (k === "/") box.focus(); else if (k === "escape") select(null); else return;
    event.preventDefault();
  });
  function timeAt(x) { return from + ((x - left) / (view.clientWidth - left)) * (to - from); }
  view.addEventListener("wheel", function (event) { if (event.ctrlKey) zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, timeAt(event.offsetX)); else { scroll = Math.max(0, Math.min(Math.max(0, rows.length * rowHeight - view.clientHeight + top0), scroll + event.deltaY)); set(from + (event.deltaX / view.clientWidth) * (to - from), to + (event.deltaX / view.clientWidth) * (to - from)); } event.preventDefault(); }, { passive: false });
  var drag = null;
  view.addEventListener("pointerdown", function (event) { drag = { x: event.offsetX, from: from, to: to, moved: false }; view.setPointerCapture(event.pointerId); });
  view.addEventListener("pointermove", function (event) { if (drag && Math.abs(event.offsetX - drag.x) > 3) { drag.moved = true; var d = ((drag.x - event.offsetX) / (view.clientWidth - left)) * (drag.to - drag.from); set(drag.from + d, drag.to + d); } });
  view.addEventListener("pointerup", function (event) {
    if (drag && !drag.moved && event.offsetX > left) {
      var index = Math.floor((event.offsetY - top0 + scroll) / rowHeight), t = timeAt(event.offsetX), row = rows[index];
      if (row) { var e = firstAfter(row, t), near = 2 * (to - from) / view.clientWidth; select(e < row.at + row.count && start[e] * tick <= t + near ? e : null); }
    }
    drag = null;
  });
  document.querySelectorAll("[data-jump]").forEach(function (card) { card.addEventListener("click", function () { var e = Number(card.dataset.jump); if (e >= 0) focusOn(e); view.scrollIntoView({ block: "nearest" }); }); });
  document.getElementById("legend").innerHTML = meta.kinds.map(function (k, i) { return "<span><i data-kind='" + i + "'></i>" + k + "</span>"; }).join("");
  function paint() { document.querySelectorAll("[data-kind]").forEach(function (i) { i.style.background = colors()[Number(i.dataset.kind)]; }); schedule(); }
  dark.addEventListener("change", paint); addEventListener("resize", schedule); paint(); draw();
})();
`;
