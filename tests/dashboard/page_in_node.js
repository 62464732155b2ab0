// Run the page's script in a made-up document that notes what is drawn, and print what a reader would see.
"use strict";
const fs = require("node:fs");
const vm = require("node:vm");
const [script, answer] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));

const canvases = [];

function element(kind) {
  const made = { kind, children: [], attributes: {}, textContent: "", value: "", clientWidth: 400, clientHeight: 190 };
  made.append = (...more) => made.children.push(...more);
  made.replaceChildren = (...more) => {
    made.children = more;
    if (kind === "select") made.value = more.length ? more[0].value : "";
  };
  made.setAttribute = (name, value) => { made.attributes[name] = value; };
  made.addEventListener = () => {};
  Object.defineProperty(made, "options", { get: () => made.children });
  if (kind === "canvas") {
    made.strokes = made.fills = 0;
    made.getContext = () => {
      made.strokes = made.fills = 0;
      const brush = { stroke: () => made.strokes++, fill: () => made.fills++ };
      const numbers = (...at) => { if (!at.every(Number.isFinite)) throw new Error(`drawn at ${at}`); };
      for (const name of ["moveTo", "lineTo", "scale", "fillRect"]) brush[name] = numbers;
      brush.fillText = (text, ...at) => numbers(...at);
      for (const name of ["beginPath", "closePath"]) brush[name] = () => {};
      return brush;
    };
    canvases.push(made);
  }
  return made;
}

const named = { query: element("select"), state: element("span"), facts: element("dl"), charts: element("section") };
const world = vm.createContext({
  document: {
    createElement: element, getElementById: (id) => named[id], addEventListener: () => {}, hidden: false,
    documentElement: {},
  },
  location: { search: "" },
  URLSearchParams, Intl, Math, Date, Map, Object, console,
  devicePixelRatio: 2,
  getComputedStyle: () => ({ getPropertyValue: () => " #123456" }),
  addEventListener: () => {},
  setTimeout: () => {},
  fetch: async () => ({ ok: true, json: async () => JSON.parse(answer) }),
});

vm.runInContext(script, world);
setImmediate(() => setImmediate(() => {
  const figures = named.charts.children;
  const shown = {
    facts: Object.fromEntries(named.facts.children.map((card) => card.children.map((each) => each.textContent))),
    queries: named.query.children.map((option) => option.textContent),
    captions: figures.map((figure) => figure.children[0].children.map((each) => each.textContent)),
    bands: canvases.reduce((sum, canvas) => sum + canvas.fills, 0),
    lines: canvases.map((canvas) => canvas.strokes),
    state: named.state.textContent,
    largest: vm.runInContext("kept(Array.from({ length: 50000 }, (_, at) => at)).length", world),
  };
  console.log(JSON.stringify(shown));
}));
