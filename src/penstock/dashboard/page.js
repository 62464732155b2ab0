// Draw what queries do: ask the server for what is new, keep it, and draw the query that is chosen.
"use strict";

const EVERY = 2000; // milliseconds between two questions
const POINTS = 10000; // of a query
const QUIET = 10; // seconds without a micro-batch, and five times as long as they usually are apart
const SHADES = ["one", "two", "three", "four", "five", "six"];
const SECOND = 1, MINUTE = 60, HOUR = 3600, DAY = 86400;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((many) => many * SECOND), ...[1, 2, 5, 10, 15, 30].map((many) => many * MINUTE),
  ...[1, 2, 3, 6, 12].map((many) => many * HOUR), ...[1, 2, 7, 30, 90, 365].map((many) => many * DAY),
];
const token = new URLSearchParams(location.search).get("token");
const digits = (options) => new Intl.NumberFormat("en", options);
const count = digits({ maximumFractionDigits: 0 });
const short = digits({ notation: "compact", maximumSignificantDigits: 3 });
const percent = { format: (share) => `${(100 * share).toFixed(1)}%` };
const roundly = { format: (share) => `${+(100 * share).toFixed(2)}%` };
const fine = { format: (seconds) => seconds < 10 ? seconds.toFixed(seconds < 0.1 ? 4 : 2) : count.format(seconds) };
const moments = (options) => new Intl.DateTimeFormat(undefined, { hourCycle: "h23", ...options });
const precise = moments({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = moments({ hour: "2-digit", minute: "2-digit" });
const days = moments({ day: "numeric", month: "short" });
const dated = moments({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

const known = new Map(); // name of a query -> its points
let run = null; // of the server that was asked last
let serial = 0; // of the last point that came
let reached = true; // whether the server answered when it was asked last

const find = (id) => document.getElementById(id);
const both = (counts) => counts.reduce((sum, each) => sum + each, 0); // sides of a join, or all of several streams
const last = (list) => list[list.length - 1];

// --- what is drawn --------------------------------------------------------------------------------------------------

// What a total grew by since the point before; null where it began anew.
function growth(points, total) {
  return points.map((point, at) => {
    const more = at ? total(point) - total(points[at - 1]) : total(point);
    return more >= 0 ? more : null;
  });
}

// The growth of a total a second. The first point of all has no point before it: its own micro-batch is its time.
function rates(points, total) {
  return growth(points, total).map((more, at) => {
    const seconds = at ? points[at].time - points[at - 1].time : points[at].batch ? 0 : points[at].seconds;
    return more !== null && seconds > 0 ? more / seconds : null;
  });
}

function probed(points) {
  const came = growth(points, (point) => both(point.arrivals));
  const passed = growth(points, (point) => both(point.unprobed));
  return came.map((rows, at) => rows && passed[at] !== null ? Math.max(0, 1 - passed[at] / rows) : null);
}

const each = (points, value) => points.map(value);

const CHARTS = [
  {
    title: "Rows in", unit: "rows a second", words: short,
    lines: (points) => last(points).streams.map((name, at) => ({
      name, values: rates(points, (point) => point.arrivals[at]),
    })),
  },
  {
    title: "Pairs out", unit: "pairs a second", words: short,
    lines: (points) => [{ name: "pairs", shade: "three", values: rates(points, (point) => point.pairs) }],
  },
  {
    title: "Recall", unit: "with its 95 % interval", words: percent, ticks: roundly,
    most: 1, close: true, none: "Recall is not known.",
    lines: (points) => [{
      name: "recall", shade: "four", values: each(points, (point) => point.recall && point.recall[1]),
      low: each(points, (point) => point.recall && point.recall[0]),
      high: each(points, (point) => point.recall && point.recall[2]),
    }],
  },
  {
    title: "Rows held", unit: "rows", words: count, ticks: short, stacked: true,
    lines: (points) => last(points).streams.map((name, at) => ({
      name, values: each(points, (point) => point.live[at]),
    })),
    limit: (points) => last(points).budget,
  },
  {
    title: "Rows shed", unit: "rows a second", words: short, stacked: true, none: "Nothing was shed.",
    lines: (points) => Object.entries(last(points).shed).filter(([, sides]) => both(sides)).map(([reason], at) => ({
      name: reason, shade: ["five", "six", "two"][at % 3],
      values: rates(points, (point) => both(point.shed[reason] || [])),
    })),
  },
  {
    title: "Fully probed", unit: "share of the rows that came", words: percent, ticks: roundly, most: 1,
    shown: (points) => both(last(points).unprobed) > 0,
    lines: (points) => [{ name: "probed", shade: "six", values: probed(points) }],
  },
  {
    title: "Micro-batch", unit: "seconds", words: fine, ticks: short,
    lines: (points) => [{ name: "took", values: each(points, (point) => point.seconds) }],
  },
  {
    title: "Lag", unit: "seconds, from the newest row's time to the batch's end", words: fine, ticks: short,
    shown: (points) => points.some((point) => point.lag !== null),
    lines: (points) => [{ name: "newest row", shade: "two", values: each(points, (point) => point.lag) }],
  },
];

function facts(point) {
  const shed = Object.entries(point.shed).map(([reason, sides]) => [reason, both(sides)]).filter((pair) => pair[1]);
  const given = shed.reduce((sum, pair) => sum + pair[1], 0);
  const came = both(point.arrivals), passed = both(point.unprobed);
  const [low, mid, high] = point.recall || [];
  const interval = mid === undefined ? "nothing was sampled" : high - low < 0.0005 ? "exactly" :
    `between ${(100 * low).toFixed(1)} and ${(100 * high).toFixed(1)}`;
  const named = (pairs) => pairs.map(([name, value]) => `${name}\u00a0${count.format(value)}`).join(" \u00b7 ");
  const observed = point.mode === "observe";
  return [
    ["Recall", mid === undefined ? "not known" : percent.format(mid), interval],
    ["Rows in", count.format(came), named(point.streams.map((name, at) => [name, point.arrivals[at]]))],
    ["Pairs out", count.format(point.pairs), came ? `${short.format(point.pairs / came)} a row` : ""],
    ["Rows held", count.format(point.memory_rows), [
      ...(point.budget === null ? [] : [`of\u00a0${count.format(point.budget)}`]),
      `${(point.memory_bytes / 1e6).toFixed(1)}\u00a0MB`,
    ].join(" \u00b7 ")],
    [observed ? "Would have been shed" : "Rows shed", count.format(given), named(shed) || "none"],
    ...(passed ? [["Not fully probed", count.format(passed), `${percent.format(passed / came)} of the rows`]] : []),
    ...(point.order === null ? [] : [["Order", point.order[0], point.order[1]]]),
    ["Micro-batches", count.format(point.batch + 1), [
      `last\u00a0${fine.format(point.seconds)}\u00a0s`,
      ...(point.lag === null ? [] : [`lag\u00a0${fine.format(point.lag)}\u00a0s`]),
    ].join(" \u00b7 ")],
  ];
}

// --- a chart --------------------------------------------------------------------------------------------------------

function made(kind, text, shade) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (shade) element.className = shade;
  return element;
}

// Round numbers from below `low` to above `high`, about so many.
function scale(low, high, about) {
  const rough = (high - low) / about || 1, size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 2.5, 5, 10].find((many) => many * size >= rough * (1 - 1e-9));
  const first = Math.floor(low / step + 1e-9), end = Math.ceil(high / step - 1e-9);
  return Array.from({ length: end - first + 1 }, (_, at) => +((first + at) * step).toPrecision(12));
}

// Moments that are round on the reader's clock, about so many.
function hours(begin, end, about) {
  const step = STEPS.find((seconds) => (end - begin) / seconds <= about) || last(STEPS);
  const shift = -60 * new Date(1000 * begin).getTimezoneOffset();
  const ticks = [];
  for (let at = Math.ceil((begin + shift) / step) * step - shift; at <= end; at += step) ticks.push(at);
  return { ticks, words: step < MINUTE ? precise : step < DAY ? minutes : days };
}

// The stretches of values that are there: first and last place of each.
function stretches(values) {
  const found = [];
  for (let from = 0; from < values.length; from++) {
    if (values[from] === null) continue;
    let to = from;
    while (to + 1 < values.length && values[to + 1] !== null) to++;
    found.push([from, to]);
    from = to;
  }
  return found;
}

// What is drawn of values: for every column of pixels where it is, the mean, the lowest and the highest.
function columns(x, values, from, to) {
  const found = [];
  for (let at = from; at <= to;) {
    const pixel = Math.round(x[at]);
    let end = at, sum = 0, low = Infinity, high = -Infinity;
    for (; end <= to && Math.round(x[end]) === pixel; end++) {
      sum += values[end];
      if (values[end] < low) low = values[end];
      if (values[end] > high) high = values[end];
    }
    found.push({ x: end - at > 1 ? pixel : x[at], mean: sum / (end - at), low, high });
    at = end;
  }
  return found;
}

class Chart {
  constructor(about) {
    this.about = about;
    this.figure = made("figure");
    const caption = made("figcaption"), title = made("h2", `${about.title} `);
    title.append(made("small", about.unit));
    this.legend = made("ul");
    caption.append(title, this.legend);
    this.plot = made("div", undefined, "plot");
    this.plot.tabIndex = 0;
    this.plot.setAttribute("role", "img");
    this.base = made("canvas");
    this.over = made("canvas");
    this.none = made("p", about.none || "Nothing yet.");
    this.plot.append(this.base, this.over, this.none);
    this.figure.append(caption, this.plot);
    this.plot.addEventListener("pointermove", (event) => point(this.nearest(event.offsetX)));
    this.plot.addEventListener("pointerdown", (event) => point(this.nearest(event.offsetX)));
    this.plot.addEventListener("pointerleave", () => point(null));
    this.plot.addEventListener("blur", () => point(null));
    this.plot.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (way) point(Math.min(Math.max((cursor === null ? view.length - 1 : cursor) + way, 0), view.length - 1));
    });
  }

  // Take points, and draw them.
  update(points) {
    this.figure.hidden = Boolean(this.about.shown && !this.about.shown(points));
    if (this.figure.hidden) return;
    this.lines = this.about.lines(points).map((line, at) => ({ shade: SHADES[at % SHADES.length], ...line }));
    this.none.hidden = this.lines.some((line) => line.values.some((value) => value !== null));
    if (this.about.stacked) {
      this.lines.forEach((line, at) => {
        line.low = at ? this.lines[at - 1].high : line.values.map((value) => value === null ? null : 0);
        line.high = line.values.map((value, place) => value === null ? null : value + (line.low[place] || 0));
      });
    }
    this.limit = this.about.limit ? this.about.limit(points) : null;
    this.paint(points);
    this.mark(points, cursor);
  }

  // A clean brush for one of the two canvases.
  brush(canvas) {
    const ratio = devicePixelRatio || 1;
    const wide = Math.round(this.wide * ratio), high = Math.round(this.high * ratio);
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    const brush = canvas.getContext("2d");
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, this.wide, this.high);
    brush.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    brush.lineJoin = "round";
    return brush;
  }

  // Where values and times are: the lowest and highest of them, round, and some room for the numbers.
  lay(points, brush) {
    let low = Infinity, high = 0;
    for (const line of this.lines) {
      for (const values of [line.values, line.low, line.high]) {
        for (const value of values || []) {
          if (value === null) continue;
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
    }
    if (this.limit !== null) high = Math.max(high, this.limit);
    const most = this.about.most;
    const bottom = this.about.close && low < Infinity && low >= 0.5 ? Math.min(low, 0.99 * most) : 0;
    this.rows = scale(bottom, most || high || 1, 4).filter((row) => !most || row <= most);
    this.labels = this.rows.map((row) => (this.about.ticks || this.about.words).format(row));
    this.left = Math.ceil(Math.max(...this.labels.map((label) => brush.measureText(label).width))) + 10;
    this.right = this.wide - 6;
    this.top = 8;
    this.bottom = this.high - 22;
    this.begin = points[0].time;
    this.end = last(points).time;
    if (this.begin === this.end) [this.begin, this.end] = [this.begin - 1, this.end + 1];
    const [floor, ceiling] = [this.rows[0], last(this.rows)];
    this.y = (value) => this.bottom - (this.bottom - this.top) * (value - floor) / (ceiling - floor);
    this.across = (time) => this.left + (this.right - this.left) * (time - this.begin) / (this.end - this.begin);
    this.x = points.map((point) => this.across(point.time));
  }

  paint(points) {
    this.wide = this.plot.clientWidth;
    this.high = this.plot.clientHeight;
    const brush = this.brush(this.base);
    this.lay(points, brush);
    this.axes(brush);
    for (const line of this.lines) {
      if (line.high) this.fill(brush, line);
      this.stroke(brush, line);
    }
    if (this.limit !== null) {
      brush.setLineDash([5, 4]);
      brush.strokeStyle = brush.fillStyle = shade("soft");
      this.row(brush, this.limit);
      brush.setLineDash([]);
      brush.textAlign = "right";
      brush.textBaseline = this.y(this.limit) > this.top + 14 ? "bottom" : "top";
      brush.fillText("budget", this.right - 2, this.y(this.limit) + (brush.textBaseline === "top" ? 3 : -2));
    }
  }

  row(brush, value) {
    const y = Math.round(this.y(value)) + 0.5;
    brush.beginPath();
    brush.moveTo(this.left, y);
    brush.lineTo(this.right, y);
    brush.stroke();
  }

  axes(brush) {
    brush.lineWidth = 1;
    brush.strokeStyle = shade("line");
    brush.fillStyle = shade("soft");
    brush.textAlign = "right";
    brush.textBaseline = "middle";
    this.rows.forEach((value, at) => {
      this.row(brush, value);
      brush.fillText(this.labels[at], this.left - 6, this.y(value));
    });
    brush.textAlign = "center";
    brush.textBaseline = "top";
    const { ticks, words } = hours(this.begin, this.end, (this.right - this.left) / 85);
    for (const time of ticks) {
      const label = words.format(1000 * time), half = brush.measureText(label).width / 2;
      const x = Math.round(this.across(time)) + 0.5;
      brush.beginPath();
      brush.moveTo(x, this.bottom);
      brush.lineTo(x, this.bottom + 4);
      brush.stroke();
      brush.fillText(label, Math.min(Math.max(x, half), this.wide - half), this.bottom + 7);
    }
  }

  // The area between two lines of places.
  area(brush, over, under) {
    brush.beginPath();
    for (const [x, value] of over) brush.lineTo(x, this.y(value));
    for (const [x, value] of under.reverse()) brush.lineTo(x, this.y(value));
    brush.closePath();
    brush.fill();
  }

  fill(brush, line) {
    brush.fillStyle = shade(line.shade);
    brush.globalAlpha = this.about.stacked ? 0.28 : 0.2;
    for (const [from, to] of stretches(line.high)) {
      const [over, under] = [line.high, line.low].map((values) =>
        columns(this.x, values, from, to).map((column) => [column.x, column.mean]));
      this.area(brush, over, under);
    }
    brush.globalAlpha = 1;
  }

  // A line through the means; where points are closer than pixels, with what lies around them.
  stroke(brush, line) {
    const values = this.about.stacked ? line.high : line.values;
    brush.strokeStyle = brush.fillStyle = shade(line.shade);
    brush.lineWidth = 1.6;
    for (const [from, to] of stretches(values)) {
      const found = columns(this.x, values, from, to);
      if (found.length === 1) brush.fillRect(found[0].x - 2, this.y(found[0].mean) - 2, 4, 4);
      if (found.length < to - from + 1) {
        brush.globalAlpha = 0.22;
        this.area(brush, found.map(({ x, high }) => [x, high]), found.map(({ x, low }) => [x, low]));
        brush.globalAlpha = 1;
      }
      brush.beginPath();
      for (const { x, mean } of found) brush.lineTo(x, this.y(mean));
      brush.stroke();
    }
  }

  // Show the values of one point, or of the last if none is pointed at.
  mark(points, at) {
    if (this.figure.hidden) return;
    const place = at === null ? points.length - 1 : at;
    const words = this.lines.map((line) => {
      const value = line.values[place];
      const range = line.low && !this.about.stacked && value !== null && line.high[place] - line.low[place] >= 0.0005;
      return value === null ? "-" : this.about.words.format(value) +
        (range ? ` (${(100 * line.low[place]).toFixed(1)}-${(100 * line.high[place]).toFixed(1)})` : "");
    });
    this.legend.replaceChildren(...this.lines.map((line, number) => {
      const item = made("li", `${line.name} `, line.shade);
      item.append(made("b", words[number]));
      return item;
    }));
    const told = this.lines.map((line, number) => `${line.name} ${words[number]}`);
    this.plot.setAttribute("aria-label", `${this.about.title}, ${this.about.unit}: ${told.join(", ")}`);
    const brush = this.brush(this.over);
    if (at === null) return;
    brush.strokeStyle = shade("soft");
    brush.beginPath();
    brush.moveTo(this.x[at], this.top);
    brush.lineTo(this.x[at], this.bottom);
    brush.stroke();
    for (const line of this.lines) {
      const value = (this.about.stacked ? line.high : line.values)[at];
      if (value === null) continue;
      brush.fillStyle = shade(line.shade);
      brush.strokeStyle = shade("card");
      brush.lineWidth = 1.5;
      brush.beginPath();
      brush.arc(this.x[at], this.y(value), 4, 0, 2 * Math.PI);
      brush.fill();
      brush.stroke();
    }
    const label = (this.end - this.begin > DAY ? dated : precise).format(1000 * points[at].time);
    const half = brush.measureText(label).width / 2 + 5;
    const x = Math.min(Math.max(this.x[at], half), this.wide - half);
    brush.fillStyle = shade("ink");
    brush.fillRect(x - half, this.bottom + 3, 2 * half, 17);
    brush.fillStyle = shade("card");
    brush.textAlign = "center";
    brush.textBaseline = "middle";
    brush.fillText(label, x, this.bottom + 12);
  }

  // The place of the point that is nearest to a place on the plot.
  nearest(x) {
    let from = 0, to = this.x.length - 1;
    while (to - from > 1) {
      const middle = (from + to) >> 1;
      if (this.x[middle] < x) from = middle;
      else to = middle;
    }
    return x - this.x[from] < this.x[to] - x ? from : to;
  }
}

// --- the page -------------------------------------------------------------------------------------------------------

const charts = CHARTS.map((about) => new Chart(about));
let shades = {}; // name -> colour, of the light or the dark page
let view = []; // the points that are drawn
let cursor = null; // the place of the one that is pointed at
let due = false; // whether a drawing is on its way

const shade = (name) => shades[name];

function point(at) {
  if (at === cursor || !view.length) return;
  cursor = at;
  for (const chart of charts) chart.mark(view, cursor);
}

// Points of which the page keeps as many as it may: the old become sparse, the young stay.
function kept(points) {
  while (points.length > POINTS) points = points.filter((_, at) => at === 0 || at >= points.length / 2 || at % 2 === 0);
  return points;
}

// Keep what came; return whether it is news.
function take(answer) {
  let news = answer.run !== run;
  if (news) known.clear();
  run = answer.run;
  for (const [name, query] of Object.entries(answer.queries)) {
    const before = (known.get(name) || []).filter((point) => point.serial >= query.first);
    known.set(name, kept(before.concat(query.points)));
    for (const point of query.points) serial = Math.max(serial, point.serial);
    news = news || query.points.length > 0;
  }
  return news;
}

function choices() {
  const choice = find("query"), names = [...known.keys()], chosen = choice.value;
  if (names.length === choice.options.length && names.every((name, at) => choice.options[at].value === name)) return;
  choice.replaceChildren(...names.map((name) => {
    const option = made("option", name);
    option.value = name;
    return option;
  }));
  if (names.includes(chosen)) choice.value = chosen;
}

// Say how old the last micro-batch is.
function age() {
  const state = find("state"), points = known.get(find("query").value) || [];
  state.className = "";
  if (!reached) {
    state.textContent = "the server does not answer: the job may have ended; asking again";
    state.className = "away";
  } else if (!points.length) {
    state.textContent = "waiting for the first micro-batch";
  } else {
    const moment = last(points).time, ago = Math.max(0, Math.round(Date.now() / 1000 - moment));
    const some = points.slice(-10), usual = (moment - some[0].time) / Math.max(1, some.length - 1);
    const live = ago <= Math.max(QUIET, 5 * usual);
    state.textContent = live ? `live, last micro-batch ${ago} s ago` : `last micro-batch on ${dated.format(1000 * moment)}`;
    if (live) state.className = "live";
  }
}

function show() {
  choices();
  age();
  const all = known.get(find("query").value) || [];
  find("empty").hidden = all.length > 0 || run === null;
  for (const id of ["facts", "charts"]) find(id).hidden = !all.length;
  if (!all.length) return;
  const span = Number(find("range").value), since = span ? last(all).time - span : -Infinity;
  const old = cursor === null ? null : view[cursor];
  const from = all.findIndex((point) => point.time >= since);
  view = from ? all.slice(from) : all;
  cursor = old ? view.indexOf(old) : null;
  if (cursor === -1) cursor = null;
  const style = getComputedStyle(document.documentElement);
  for (const name of [...SHADES, "ink", "soft", "line", "card"]) shades[name] = style.getPropertyValue(`--${name}`).trim();
  find("facts").replaceChildren(...facts(last(all)).map(([name, value, more]) => {
    const card = made("div");
    card.append(made("dt", name), made("dd", value), made("dd", more));
    return card;
  }));
  for (const chart of charts) chart.update(view);
  keys(all.findLast((point) => point.keys && point.keys.length));
}

function keys(told) {
  find("keys").hidden = !told;
  if (!told) return;
  find("keys").querySelector("tbody").replaceChildren(...told.keys.map(([key, rows]) => {
    const line = made("tr");
    line.append(made("td", key), made("td", count.format(rows)));
    return line;
  }));
}

function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    show();
  });
}

async function ask(from) {
  const answer = await fetch(`/data.json?since=${from}`, { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

async function look() {
  if (!document.hidden) {
    try {
      let answer = await ask(serial);
      if (run !== null && answer.run !== run) { // another server: its serials begin anew
        serial = 0;
        answer = await ask(0);
      }
      reached = true;
      if (take(answer)) soon();
    } catch {
      reached = false;
    }
    age();
  }
  setTimeout(look, EVERY);
}

find("charts").prepend(...charts.map((chart) => chart.figure));
for (const id of ["query", "range"]) find(id).addEventListener("change", soon);
addEventListener("resize", soon);
document.addEventListener("visibilitychange", soon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
look();
