// What the page does beyond links and forms: ranks on a canvas, curves with one cursor, keys, dialogs.
// Everything here is an addition: without it every page still shows and does the same.

const all = (query, root = document) => [...root.querySelectorAll(query)];
const one = (query, root = document) => root.querySelector(query);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---------------------------------------------------------------- theme
const theme = one("#theme");
const remembered = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (remembered) document.documentElement.dataset.theme = remembered;
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("theme", dark ? "light" : "dark"); } catch { /* not kept */ }
  redraw();
});
// What stands on a canvas has the colours of the moment in which it was drawn.
const drawn = [];
const redraw = () => { drawRanks(); for (const plot of drawn) plot.redraw(false); };
for (const change of ["print", "(prefers-color-scheme: dark)"]) matchMedia(change).addEventListener("change", redraw);

// ---------------------------------------------------------------- ranks
let ranks = null;
const shades = () => ({ quiet: css("--line"), consequence: "#e8a33d", reported: "#c77d9b", suspect: css("--bad") });

function cellSize(count) {
  return count <= 1024 ? 12 : count <= 8192 ? 6 : count <= 40000 ? 3 : 2;
}

// One pass over a pixel buffer: a canvas call for each of 100,000 ranks would take a second.
function drawRanks() {
  const canvas = one("#grid");
  if (!canvas || !ranks) return;
  const began = performance.now();
  const cell = cellSize(ranks.rank.length);
  const room = Math.max(240, Math.min(one("#ranks").clientWidth, 1200));
  const columns = Math.min(ranks.rank.length, Math.max(8, Math.floor(room / cell / 8) * 8));
  const rows = Math.ceil(ranks.rank.length / columns);
  canvas.width = columns * cell;
  canvas.height = rows * cell;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const inks = ranks.parts.map((part) => {
    probe.fillStyle = shades()[part];
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  });
  const gap = cell > 4 ? 1 : 0;
  for (let i = 0; i < ranks.rank.length; i++) {
    const x = (i % columns) * cell, y = Math.floor(i / columns) * cell, ink = inks[ranks.part[i]];
    for (let dy = 0; dy < cell - gap; dy++) pixels.fill(ink, (y + dy) * canvas.width + x, (y + dy) * canvas.width + x + cell - gap);
  }
  context.putImageData(image, 0, 0);
  // One rank of many thousands is two pixels: the first fault gets a mark that nobody overlooks.
  const first = ranks.parts.indexOf("suspect"), box = 12;
  let marked = 0;
  for (let i = 0; cell < box && i < ranks.part.length && marked < 500; i++) {
    if (ranks.part[i] !== first) continue;
    marked++;
    const x = (i % columns) * cell + cell / 2, y = Math.floor(i / columns) * cell + cell / 2;
    const left = Math.min(Math.max(0, x - box / 2), canvas.width - box), top = Math.min(Math.max(0, y - box / 2), canvas.height - box);
    context.fillStyle = css("--paper");
    context.fillRect(left, top, box, box);
    context.fillStyle = css("--bad");
    context.fillRect(left + 2, top + 2, box - 4, box - 4);
  }
  canvas.dataset.columns = columns;
  canvas.dataset.cell = cell;
  canvas.dataset.ms = (performance.now() - began).toFixed(1);
}

const grid = one("#grid");
if (grid) {
  fetch(grid.dataset.from).then((answer) => answer.json()).then((found) => { ranks = found; drawRanks(); });
  grid.addEventListener("pointermove", (event) => {
    if (!ranks) return;
    const box = grid.getBoundingClientRect(), scale = grid.width / box.width;
    const cell = +grid.dataset.cell, columns = +grid.dataset.columns;
    const i = Math.floor((event.offsetY * scale) / cell) * columns + Math.floor((event.offsetX * scale) / cell);
    if (i < 0 || i >= ranks.rank.length) return;
    const node = ranks.nodes[ranks.node[i]], last = ranks.last[i];
    one("#grid-at").textContent = `rank ${ranks.rank[i]}${node ? ` on ${node}` : ""}: ${ranks.parts[ranks.part[i]]}${last === null ? "" : `, last step ${last}`}`;
  });
}

// ---------------------------------------------------------------- one moment: curves, axis, lists, log
// A moment is seconds since the epoch. Whoever is pointed at tells the others; each shows what is nearest.
const axis = one("#axis"), stops = axis ? JSON.parse(axis.dataset.stops) : [], plots = [];
const listed = all("[data-at]").map((item) => ({ item, at: Date.parse(item.dataset.at) / 1000 }));
const nearest = (times, at) => {
  let best = -1;
  times.forEach((time, i) => { if (time !== null && (best < 0 || Math.abs(time - at) < Math.abs(times[best] - at))) best = i; });
  return best;
};
// Between two stops the axis is linear, from time to place (0, 1) and back (1, 0).
const along = (value, from, to) => {
  let i = 1;
  while (i < stops.length - 1 && stops[i][from] < value) i++;
  const [low, high] = [stops[i - 1], stops[i]], share = (value - low[from]) / (high[from] - low[from] || 1);
  return low[to] + Math.min(1, Math.max(0, share)) * (high[to] - low[to]);
};

function pointAt(at, source) {
  if (stops.length) for (const name of ["x1", "x2"]) one("#axis-cursor").setAttribute(name, along(at, 0, 1));
  for (const plot of source === "curve" ? [] : plots) {
    const i = nearest(plot.times, at);
    // Far from every step there is nothing to show on a curve.
    const near = i >= 0 && Math.abs(plot.times[i] - at) <= 600;
    plot.setCursor({ left: near ? plot.valToPos(plot.data[0][i], "x") : -10, top: near ? 20 : -10 }, false);
  }
  all(".now").forEach((old) => old.classList.remove("now"));
  for (const list of [".timeline", ".evidence"]) {
    const mine = listed.filter((entry) => entry.item.closest(list)), i = nearest(mine.map((entry) => entry.at), at);
    if (i >= 0 && Math.abs(mine[i].at - at) < 60) mine[i].item.classList.add("now");
  }
  const told = one("#moment");
  if (!told) return;
  const clock = new Date(at * 1000).toISOString().slice(11, 19);
  told.textContent = `${clock} `;
  if (one("#curves")) {
    const link = document.createElement("a");
    link.href = one("#curves").dataset.log + clock;
    link.textContent = "the log at this moment";
    told.append(link);
  }
}
if (axis) {
  const timeOf = (event) => {
    const box = axis.getBoundingClientRect();
    return along(((event.clientX - box.left) / box.width) * 1000, 1, 0);
  };
  axis.addEventListener("pointermove", (event) => pointAt(timeOf(event), "axis"));
  axis.addEventListener("click", (event) => {
    const mark = event.target.closest(".mark");
    if (mark) location.hash = `T${mark.dataset.row}`;
  });
}
for (const { item, at } of listed) item.addEventListener("pointerenter", () => pointAt(at, "list"));

// As many digits as tell two ticks apart.
const told = (value, apart) => {
  let digits = 0;
  while (digits < 12 && Math.abs(Math.round(apart * 10 ** digits) - apart * 10 ** digits) > 1e-6) digits++;
  return value !== 0 && (Math.abs(value) >= 1e7 || digits > 6) ? value.toExponential(2) : value.toFixed(digits);
};
const titles = { loss: "loss", step_time_s: "step time, s", relative_step_time: "relative step time", grad_norm: "gradient norm", throughput: "throughput", steps_per_s: "throughput, steps per second" };
const curves = one("#curves");
if (curves && window.uPlot) {
  fetch(curves.dataset.from).then((answer) => answer.json()).then(({ failed_at, series }) => {
    for (const one_ of series) {
      const shown = all("figure", curves).find((figure) => figure.dataset.name === one_.name && !figure.hidden);
      if (!shown || !titles[one_.name]) continue;
      const place = document.createElement("div");
      place.className = "live-chart";
      shown.hidden = true;
      shown.before(place);
      const plot = new uPlot({
        width: Math.max(240, place.clientWidth), height: 200, title: titles[one_.name],
        cursor: { sync: { key: "incident" } }, scales: { x: { time: false } },
        axes: [{ stroke: () => css("--dim"), grid: { stroke: () => css("--line"), width: 1 }, incrs: [1, 2, 5].flatMap((n) => [1, 10, 100, 1e3, 1e4, 1e5, 1e6].map((p) => n * p)).sort((a, b) => a - b), label: "step" },
          { stroke: () => css("--dim"), grid: { stroke: () => css("--line"), width: 1 }, size: 62, values: (_, ticks, __, ___, apart) => ticks.map((tick) => told(tick, apart)) }],
        series: [{ label: "step" }, { label: titles[one_.name], stroke: () => css("--link"), width: 1.5 }],
        hooks: { drawSeries: [(plot) => {
          // A value that is no number has no place on the curve: a ring at the top says at which step.
          plot.ctx.strokeStyle = css("--bad");
          one_.value.forEach((value, i) => {
            if (value !== null || one_.name !== "loss") return;
            plot.ctx.beginPath();
            plot.ctx.arc(plot.valToPos(one_.step[i], "x", true), plot.bbox.top + 6 * devicePixelRatio, 3 * devicePixelRatio, 0, 2 * Math.PI);
            plot.ctx.stroke();
          });
        }], setCursor: [(plot) => {
          // The others follow by uPlot's own synchronisation; only the one under the pointer tells the rest.
          const at = plot.times && plot.over.matches(":hover") && plot.times[plot.cursor.idx];
          if (at) pointAt(at, "curve");
        }], draw: [(plot) => {
          if (failed_at === null) return;
          const x = plot.valToPos(failed_at, "x", true);
          plot.ctx.strokeStyle = css("--bad"); plot.ctx.setLineDash([5, 4]); plot.ctx.beginPath();
          plot.ctx.moveTo(x, plot.bbox.top); plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height); plot.ctx.stroke(); plot.ctx.setLineDash([]);
        }] },
      }, [one_.step, one_.value], place);
      drawn.push(plot);
      if (!one_.time.length) continue;
      plot.times = one_.time;
      plots.push(plot);
    }
  });
}

// ---------------------------------------------------------------- fleet
// Bars of a day or week, one colour for a category, stacked; the table below holds the same numbers.
const fleet = one("#fleet-chart");
const inks = ["#3b7dd8", "#d9822b", "#2f9e6e", "#b3529a", "#8a7f2a", "#c8443f", "#5d6bb5", "#5a9aa8"];
if (fleet && window.uPlot) {
  fetch(fleet.dataset.from).then((answer) => answer.json()).then((found) => {
    const most = found.categories.length > inks.length ? inks.length - 1 : inks.length;
    const kinds = found.categories.slice(0, most).map((kind) => [kind.title, (row) => row.by_category[kind.id] ?? 0]);
    if (found.categories.length > most) {
      const shown = new Set(found.categories.slice(0, most).map((kind) => kind.id));
      kinds.push(["all others", (row) => Object.entries(row.by_category).reduce((sum, [id, n]) => sum + (shown.has(id) ? 0 : n), 0)]);
    }
    const at = found.periods.map((row) => Date.parse(`${row.begins}T00:00:00Z`) / 1000);
    const counts = kinds.map(([, count]) => found.periods.map(count));
    // The sum of all is drawn first and lies behind; each next one leaves one category out.
    const sums = counts.map((_, first) => at.map((_, i) => counts.slice(first).reduce((sum, row) => sum + row[i], 0)));
    const width = Math.min(fleet.clientWidth, 960), day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
    drawn.push(new uPlot({
      width, height: 240, padding: [null, 24, null, null], cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [0, Math.max(4, Math.ceil(high * 1.05))] }, x: { time: false, range: (_, low, high) => { const half = (at[1] - at[0]) / 2; return [low - half, high + half]; } } },
      axes: [{ stroke: () => css("--dim"), grid: { show: false }, splits: () => at.filter((_, i) => i % Math.ceil(at.length / (width / 70)) === 0), values: (_, ticks) => ticks.map((s) => day(s).slice(5)) },
        { stroke: () => css("--dim"), grid: { stroke: () => css("--line") }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }],
      series: [{ label: found.period === "week" ? "week from" : "day", value: (_, s) => s === null ? "" : day(s) },
        ...kinds.map(([label], k) => ({ label, stroke: inks[k % inks.length], fill: inks[k % inks.length], width: 0, points: { show: false },
          paths: uPlot.paths.bars({ size: [0.7, 60] }), value: (_, __, ___, i) => i === null ? "" : String(counts[k][i]) }))],
    }, [at, ...sums], fleet));
  });
}

// ---------------------------------------------------------------- log
if (!location.hash) one("tr.marked")?.scrollIntoView({ block: "center" });

// ---------------------------------------------------------------- copy, dialogs, progress, drop
const copy = one("#copy");
if (copy && navigator.clipboard) {
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(await (await fetch(copy.dataset.from)).text());
    copy.textContent = "Copied";
  });
}
for (const opener of all(".open-approve")) {
  const step = opener.closest("li"), dialog = one("dialog.approve", step);
  opener.hidden = false;
  one(".decide form", step).hidden = true; // the dialog does this one
  one(".decide summary", step).textContent = "Reject ...";
  opener.addEventListener("click", () => dialog.showModal());
  one(".cancel", dialog).addEventListener("click", () => dialog.close());
}
const progress = one("#progress");
if (progress) {
  const source = new EventSource(progress.dataset.live);
  source.addEventListener("doing", (event) => { one("#doing").textContent = event.data; });
  source.addEventListener("progress", (event) => { progress.value = +event.data; });
  source.addEventListener("done", (event) => {
    source.close();
    if (event.data === "-") location.reload(); else location.replace(`/incidents/${encodeURIComponent(event.data)}`);
  });
}
const drop = one("#drop");
if (drop) {
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    brought.files = event.dataTransfer.files;
    weigh();
    one("form", drop).requestSubmit();
  });
  // What the server would not take is told before it is sent.
  const brought = one("input[type=file]", drop), most = +brought.dataset.most;
  const weigh = () => {
    const size = [...brought.files].reduce((sum, file) => sum + file.size, 0), mib = (bytes) => Math.ceil(bytes / 1048576);
    brought.setCustomValidity(size > most - 65536 ? `${mib(size)} MiB are more than ${mib(most)}: pack them, or name their folder above` : "");
    brought.reportValidity();
  };
  brought.addEventListener("change", weigh);
}
const ask = one("#ask");
// A link to the drawer opens it, and its question is what is typed next.
const openDrawer = () => { const drawer = one("#drawer"); if (drawer && location.hash === "#drawer") { drawer.open = true; one("#question").focus(); } };
addEventListener("hashchange", openDrawer);
openDrawer();
// What was said last is what is read.
const talk = one("#talk");
if (talk) {
  new MutationObserver(() => { talk.scrollTop = talk.scrollHeight; }).observe(talk, { childList: true });
  talk.scrollTop = talk.scrollHeight;
}
if (ask) ask.addEventListener("submit", () => setTimeout(() => { one("#question").value = ""; one("#question").focus(); }));

// ---------------------------------------------------------------- keys
let at = -1;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
  const rows = all("a.row, tr.cited .n a, tr.hit .n a");
  if ((event.key === "j" || event.key === "k") && rows.length) {
    at = Math.min(rows.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)));
    all(".on").forEach((old) => old.classList.remove("on"));
    rows[at].closest("tr, li").classList.add("on");
    rows[at].focus();
  } else if (event.key === "n" && one("#next")) one("#next").click();
  else if (event.key === "e" && one("#evidence")) location.hash = "evidence";
  else if (event.key === "/" && one("#search")) { event.preventDefault(); one("#search").focus(); }
  else if (event.key === "?") one("#keys").showModal();
});
