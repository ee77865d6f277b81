// Style sheet and script of the report page, inlined so that the page needs no network.

export const pageStyle = `
:root { --ink: #111827; --soft: #4b5563; --line: #d1d5db; --good: #047857; --bad: #b91c1c; --warn: #b45309; --panel: #f9fafb; --mark: #fef3c7; }
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0 auto; padding: 1rem; max-width: 62rem; color: var(--ink); background: #fff; font: 16px/1.5 "DejaVu Sans", Verdana, system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.25rem; margin: 2rem 0 0.5rem; border-bottom: 2px solid var(--line); } h3 { font-size: 1rem; margin: 1.25rem 0 0.25rem; }
a { color: #1d4ed8; } code { font: 0.875em "DejaVu Sans Mono", ui-monospace, monospace; }
nav a { margin-right: 1rem; }
.verdict { padding: 0.5rem 0.75rem; border-left: 5px solid var(--soft); background: var(--panel); }
.verdict.valid { border-color: var(--good); } .verdict.invalid { border-color: var(--bad); } .verdict.undecided { border-color: var(--warn); }
figure { margin: 1rem 0; padding: 0; break-inside: avoid; } figcaption { color: var(--soft); font-size: 0.875rem; }
figure svg { max-width: 100%; height: auto; display: block; }
figure svg .mark-symbol path, figure svg .mark-rect path { cursor: pointer; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.875rem; min-width: 100%; }
th, td { text-align: right; padding: 0.25rem 0.5rem; border-bottom: 1px solid var(--line); white-space: nowrap; } th:first-child, td:first-child, td.text { text-align: left; white-space: normal; min-width: 9rem; } th { color: var(--soft); font-weight: normal; }
.finding { border: 1px solid var(--line); border-left: 5px solid var(--soft); padding: 0.5rem 0.75rem; margin: 0.75rem 0; break-inside: avoid; }
.finding.invalid, .finding.high { border-left-color: var(--bad); } .finding.unresolved, .finding.moderate { border-left-color: var(--warn); }
.finding h3 { margin-top: 0; } .finding dl { margin: 0; } .finding dt { color: var(--soft); font-size: 0.8125rem; margin-top: 0.35rem; } .finding dd { margin: 0; } .finding ul { margin: 0; padding-left: 1.2rem; }
.tag { font-size: 0.75rem; border: 1px solid currentColor; border-radius: 3px; padding: 0 0.3rem; color: var(--soft); }
.tag.counted, .tag.derived { color: var(--good); } .tag.inferred { color: var(--warn); }
details { margin: 0.5rem 0; } summary { cursor: pointer; } tr:target, tr.shown, section:target > h3 { background: var(--mark); }
td.skipped { color: var(--soft); }
#vg-tooltip-element { position: fixed; z-index: 10; pointer-events: none; background: #fff; border: 1px solid var(--line); padding: 0.25rem 0.5rem; font-size: 0.8125rem; max-width: 22rem; display: none; }
@media (max-width: 40rem) { body { padding: 0.75rem; font-size: 15px; } h1 { font-size: 1.25rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } nav { display: none; } a { color: inherit; text-decoration: none; } .scroll { overflow: visible; } th, td { padding: 0.1rem 0.35rem; white-space: normal; } table { font-size: 8pt; } h2, h3 { break-after: avoid; } }
`;

// Runs in the browser. The static image stays until the interactive chart has been drawn.
export const pageScript = `
(function () {
  function show(id) {
    var row = document.getElementById(id);
    if (!row) return;
    for (var p = row.parentElement; p; p = p.parentElement) if (p.tagName === "DETAILS") p.open = true;
    document.querySelectorAll("tr.shown").forEach(function (r) { r.classList.remove("shown"); });
    if (row.tagName === "TR") row.classList.add("shown");
    row.scrollIntoView({ block: "center" });
    history.replaceState(null, "", "#" + id);
  }
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest("a[href^='#']");
    if (link) { event.preventDefault(); show(link.getAttribute("href").slice(1)); }
  });
  if (location.hash) show(decodeURIComponent(location.hash.slice(1)));
  window.addEventListener("beforeprint", function () { document.querySelectorAll("details").forEach(function (d) { d.open = true; }); });
  if (!window.vega) return;
  var tip = document.getElementById("vg-tooltip-element");
  function tooltip(handler, event, item, value) {
    if (value == null || value === "") { tip.style.display = "none"; return; }
    tip.textContent = "";
    var entries = typeof value === "object" ? Object.entries(value) : [["", value]];
    entries.forEach(function (entry) {
      var line = document.createElement("div");
      line.textContent = (entry[0] ? entry[0] + ": " : "") + entry[1];
      tip.appendChild(line);
    });
    tip.style.display = "block";
    tip.style.left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 12, window.innerHeight - tip.offsetHeight - 8) + "px";
  }
  document.querySelectorAll("figure[data-chart]").forEach(function (figure) {
    var specs = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
    var spec = window.innerWidth < 640 ? specs.narrow : specs.wide;
    var holder = document.createElement("div");
    var view = new vega.View(vega.parse(spec), { renderer: "svg", container: holder, hover: true, tooltip: tooltip });
    view.addEventListener("click", function (event, item) {
      var datum = item && item.datum;
      if (datum && datum.row) show(datum.row);
    });
    view.runAsync().then(function () {
      var still = figure.querySelector("svg");
      if (still) still.replaceWith(holder);
      figure.dataset.ready = "true";
    });
  });
})();
`;
