// Draw what queries do: asks the server for what is new, keeps it, and draws the query that is chosen.
"use strict";

const EVERY = 2000; // milliseconds between two questions
const POINTS = 10000; // of a query
const SHADES = ["one", "two", "three", "four"];
const SIDES = ["left", "right"];
const token = new URLSearchParams(location.search).get("token");
const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const tick = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const known = new Map(); // name of a query -> its points
let run = null; // of the server that was asked last
let serial = 0; // of the last point that came

const both = (sides) => sides[0] + sides[1];
const percent = (share) => `${(100 * share).toFixed(1)}%`;

// The growth of a total a second, between each point and the one before; null where it began anew.
function rates(points, total) {
  return points.map((point, at) => {
    const before = at ? points[at - 1] : null;
    const seconds = before ? point.time - before.time : point.seconds;
    const more = before ? total(point) - total(before) : total(point);
    return seconds > 0 && more >= 0 ? more / seconds : null;
  });
}

const sided = (points, name) =>
  SIDES.map((side, at) => ({ name: side, values: points.map((point) => point[name][at]) }));

const CHARTS = [
  {
    title: "Rows a second",
    lines: (points) => [
      ...SIDES.map((side, at) => ({ name: `in, ${side}`, values: rates(points, (point) => point.arrivals[at]) })),
      { name: "pairs out", values: rates(points, (point) => point.pairs) },
    ],
    words: short,
  },
  {
    title: "Recall",
    lines: (points) => [{ name: "estimate", values: points.map((point) => point.recall && point.recall[1]) }],
    band: (points) => points.map((point) => point.recall && [point.recall[0], point.recall[2]]),
    words: { format: percent },
    top: 1,
  },
  { title: "Rows held", lines: (points) => sided(points, "live"), words: count },
  {
    title: "Rows shed so far",
    lines: (points) => Object.keys(points[points.length - 1].shed).map((reason) => ({
      name: reason, values: points.map((point) => both(point.shed[reason] || [0, 0])),
    })),
    words: count,
  },
  {
    title: "Seconds a micro-batch",
    lines: (points) => [{ name: "seconds", values: points.map((point) => point.seconds) }],
    words: { format: (seconds) => seconds.toFixed(2) },
  },
];

function facts(point) {
  const shed = Object.values(point.shed).reduce((sum, sides) => sum + both(sides), 0);
  const [low, mid, high] = point.recall || [];
  const recall = mid === undefined ? "not known" :
    high - low < 0.0005 ? percent(mid) : `${percent(mid)} (${(100 * low).toFixed(1)}-${(100 * high).toFixed(1)})`;
  return {
    "rows in, left": count.format(point.arrivals[0]),
    "rows in, right": count.format(point.arrivals[1]),
    "pairs": count.format(point.pairs),
    "recall": recall,
    "rows held": count.format(point.memory_rows),
    "MB held": (point.memory_bytes / 1e6).toFixed(1),
    [point.mode === "observe" ? "rows it would have shed" : "rows shed"]: count.format(shed),
    "rows not fully probed": count.format(both(point.unprobed)),
    "micro-batch": count.format(point.batch),
  };
}

function made(kind, text, shade) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (shade) element.className = shade;
  return element;
}

function frame(chart) {
  const figure = made("figure");
  chart.caption = made("figcaption");
  chart.canvas = made("canvas");
  chart.canvas.setAttribute("role", "img");
  figure.append(chart.caption, chart.canvas);
  return figure;
}

function draw(chart, points) {
  const lines = chart.lines(points);
  const bands = chart.band ? chart.band(points) : [];
  const latest = lines.map((line) => line.values[line.values.length - 1]);
  const legend = lines.map((line, at) =>
    made("span", `${line.name} ${latest[at] == null ? "-" : chart.words.format(latest[at])}`, SHADES[at % SHADES.length]));
  chart.caption.replaceChildren(made("h2", chart.title), ...legend);
  chart.canvas.setAttribute("aria-label", [chart.title, ...legend.map((span) => span.textContent)].join(", "));

  const ratio = devicePixelRatio || 1;
  const wide = chart.canvas.clientWidth, high = chart.canvas.clientHeight;
  chart.canvas.width = wide * ratio;
  chart.canvas.height = high * ratio;
  const brush = chart.canvas.getContext("2d");
  brush.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();

  let top = chart.top || 0;
  for (const line of lines) for (const value of line.values) if (value > top) top = value;
  top = top || 1;
  const left = 48, right = wide - 8, above = 8, below = high - 20;
  const begin = points[0].time, length = points[points.length - 1].time - begin || 1;
  const x = (at) => left + (right - left) * (points.length > 1 ? (points[at].time - begin) / length : 0.5);
  const y = (value) => below - (below - above) * Math.min(value / top, 1);

  brush.font = "11px system-ui, sans-serif";
  brush.strokeStyle = colour("line");
  brush.fillStyle = colour("soft");
  brush.textBaseline = "middle";
  brush.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    brush.beginPath();
    brush.moveTo(left, y(share * top));
    brush.lineTo(right, y(share * top));
    brush.stroke();
    brush.fillText(chart.top ? percent(share * top) : tick.format(share * top), left - 4, y(share * top));
  }
  brush.textBaseline = "bottom";
  brush.fillText(clock.format(1000 * (begin + (points.length > 1 ? length : 0))), right, high);
  brush.textAlign = "left";
  brush.fillText(clock.format(1000 * begin), left, high);

  brush.fillStyle = colour(SHADES[0]);
  brush.globalAlpha = 0.2;
  for (let from = 0; from < bands.length; from++) {
    if (!bands[from]) continue;
    let to = from;
    while (to + 1 < bands.length && bands[to + 1]) to++;
    brush.beginPath();
    for (let at = from; at <= to; at++) brush.lineTo(x(at), y(bands[at][1]));
    for (let at = to; at >= from; at--) brush.lineTo(x(at), y(bands[at][0]));
    brush.closePath();
    brush.fill();
    from = to;
  }
  brush.globalAlpha = 1;

  brush.lineWidth = 1.5;
  lines.forEach((line, which) => {
    brush.strokeStyle = brush.fillStyle = colour(SHADES[which % SHADES.length]);
    brush.beginPath();
    let open = false;
    line.values.forEach((value, at) => {
      if (value == null) open = false;
      else if (open) brush.lineTo(x(at), y(value));
      else { brush.moveTo(x(at), y(value)); open = true; }
    });
    brush.stroke();
    const last = latest[which];
    if (last != null) brush.fillRect(x(points.length - 1) - 2, y(last) - 2, 4, 4);
  });
}

// Points of which the page keeps as many as it may: the old become sparse, the young stay.
function kept(points) {
  while (points.length > POINTS) points = points.filter((_, at) => at === 0 || at >= points.length / 2 || at % 2 === 0);
  return points;
}

function take(answer) {
  if (answer.run !== run) {
    known.clear();
    run = answer.run;
  }
  for (const [name, query] of Object.entries(answer.queries)) {
    const before = (known.get(name) || []).filter((point) => point.serial >= query.first);
    known.set(name, kept(before.concat(query.points)));
    for (const point of query.points) serial = Math.max(serial, point.serial);
  }
}

function show() {
  const choice = document.getElementById("query");
  const names = [...known.keys()];
  if (names.length !== choice.options.length || names.some((name, at) => choice.options[at].value !== name)) {
    const chosen = choice.value;
    choice.replaceChildren(...names.map((name) => {
      const option = made("option", name);
      option.value = name;
      return option;
    }));
    if (names.includes(chosen)) choice.value = chosen;
  }
  const points = known.get(choice.value);
  if (!points || !points.length) return;
  const last = points[points.length - 1];
  const ago = Math.max(0, Math.round(Date.now() / 1000 - last.time));
  document.getElementById("state").textContent = ago < 120 ? `last micro-batch ${ago} s ago` :
    `last micro-batch at ${new Date(1000 * last.time).toLocaleString()}`;
  document.getElementById("facts").replaceChildren(...Object.entries(facts(last)).map(([name, value]) => {
    const card = made("div");
    card.append(made("dt", name), made("dd", value));
    return card;
  }));
  for (const chart of CHARTS) draw(chart, points);
}

async function ask(from) {
  const answer = await fetch(`/data.json?since=${from}`, { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

async function look() {
  try {
    if (!document.hidden) {
      let answer = await ask(serial);
      if (run !== null && answer.run !== run) { // another server: its serials begin anew
        serial = 0;
        answer = await ask(0);
      }
      take(answer);
      show();
    }
  } catch (error) {
    document.getElementById("state").textContent = "the dashboard's server does not answer; trying again";
  }
  setTimeout(look, EVERY);
}

document.getElementById("charts").append(...CHARTS.map(frame));
document.getElementById("query").addEventListener("change", show);
addEventListener("resize", show);
document.addEventListener("visibilitychange", show);
look();
