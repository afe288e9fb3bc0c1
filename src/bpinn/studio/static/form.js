// The form: it shows the tables of a problem file, and every change of a control is an edit of the file's text.

import { h, math } from "./dom.js";

const OF_SENSORS = ["name", "quantity", "data", "columns", "noise", "likelihood", "missing"];
const table = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const tables = (value) => (Array.isArray(value) ? value.map(table) : []);

/** Numbers as numbers, so that the file has 0.1 and not "0.1"; anything else stays text, and the check says what is wrong. */
export function valued(text) {
  const trimmed = text.trim();
  if (trimmed === "" || !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed)) return trimmed;
  return Number(trimmed);
}

const unused = (stem, taken) => {
  for (let i = 1; ; i += 1) {
    const name = i === 1 ? stem : `${stem}${i}`;
    if (!taken.includes(name)) return name;
  }
};

/** The form of a problem. `change(edits)` applies edits, `upload(file)` adds a data file. */
export function form({ content, formulas, data, columns, known, change, upload }) {
  const set = (path, value) => change([{ do: "set", path, value }]);
  const remove = (path) => change([{ do: "remove", path }]);

  const input = (label, path, value, options = {}) => {
    const key = JSON.stringify([path, options.as]);
    const control = h("input", {
      "data-key": key, value: value ?? "", size: options.size ?? 8, spellcheck: "false", autocomplete: "off", inputmode: options.number ? "decimal" : null,
      placeholder: options.placeholder, list: options.list, class: options.wide ? "wide" : options.medium ? "medium" : "",
      oninput: () => { control.dataset.dirty = "yes"; },
      onchange: () => {
        delete control.dataset.dirty;
        if (options.change) options.change(control.value);
        else if (control.value.trim() === "" && options.optional) remove(path);
        else set(path, options.text ? control.value : valued(control.value));
      },
      onkeydown: (event) => { if (event.key === "Enter") control.dispatchEvent(new Event("change")); },
    });
    return h("label", { class: options.wide ? "wide" : "" }, h("span", {}, label), control);
  };
  const select = (label, path, value, choices, choose) => {
    const all = choices.map((choice) => (Array.isArray(choice) ? choice : [choice, choice]));
    if (value !== undefined && !all.some(([key]) => key === value)) all.unshift([value, String(value)]);
    return h("label", {}, h("span", {}, label), h("select", { "data-key": JSON.stringify([path, label]), onchange: (event) => choose(event.target.value) },
      all.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));
  };
  const rename = (path, value) => input("name", path, value, { as: "name", change: (name) => change([{ do: "rename", path, value: name.trim() }]) });
  const remover = (what, path) => h("button", { type: "button", class: "remove", "data-key": JSON.stringify([path, "remove"]), "aria-label": `Remove ${what}`, title: `Remove ${what}`, onclick: () => remove(path) }, "×");
  const adder = (text, path, value) => h("button", { type: "button", class: "add", "data-key": JSON.stringify([path[0], "add"]), onclick: () => set(path, value) }, text);
  const more = (given, shown) => {
    const rest = Object.keys(given).filter((key) => !shown.includes(key));
    return rest.length > 0 && h("p", { class: "note" }, "Also set, in the text: ", rest.map((key, i) => [i ? ", " : "", h("code", {}, key)]));
  };
  const section = (title, note, ...children) => h("fieldset", {}, h("legend", {}, title), note && h("p", { class: "note" }, note), children);

  const priorInputs = (path, prior) => {
    const kinds = Object.keys(known.priors);
    const chosen = known.priors[prior.prior] ?? [];
    const choose = (kind) => {
      const fresh = { prior: kind };
      for (const name of known.priors[kind]) fresh[name] = prior[name] ?? known.usual[name] ?? 1;
      set(path, fresh);
    };
    return [select("prior", path, prior.prior, kinds, choose),
      ...chosen.map((name) => input(name.replace("_", " "), [...path, name], prior[name], { number: true, optional: known.optional.includes(name) }))];
  };

  const domain = table(content.domain), fields = table(content.fields), unknowns = table(content.unknowns);
  const equations = table(content.equations), physics = tables(content.physics), sensors = tables(content.sensors);
  const inference = table(content.inference), coordinates = Object.keys(domain);
  const quantities = [...Object.keys(fields), ...Object.keys(equations)];

  const domainRows = Object.entries(domain).map(([name, bounds]) => h("div", { class: "row" },
    rename(["domain", name], name),
    ["from", "to"].map((end, i) => input(end, ["domain", name], Array.isArray(bounds) ? bounds[i] : "", { as: end, number: true,
      change: (text) => set(["domain", name], [0, 1].map((k) => (k === i ? valued(text) : bounds?.[k] ?? k))) })),
    remover(`coordinate ${name}`, ["domain", name])));

  const fieldRows = Object.entries(fields).map(([name, given]) => {
    const path = ["fields", name], kind = given.surrogate ?? "mlp";
    return h("div", { class: "row" }, rename(path, name),
      select("surrogate", path, kind, known.surrogates.map((one) => [one, known.called[one] ?? one]), (value) => set([...path, "surrogate"], value)),
      kind === "mlp" && input("hidden layers", [...path, "hidden"], (given.hidden ?? [50, 50]).join(", "), { size: 9, change: (text) => set([...path, "hidden"], text.split(/[\s,]+/).filter(Boolean).map(valued)) }),
      h("label", { class: "tick" }, h("input", { type: "checkbox", checked: given.positive === true, "data-key": JSON.stringify([path, "positive"]),
        onchange: (event) => (event.target.checked ? set([...path, "positive"], true) : remove([...path, "positive"])) }), h("span", {}, "positive")),
      remover(`field ${name}`, path), more(given, ["surrogate", "hidden", "positive"]));
  });

  const unknownRows = Object.entries(unknowns).map(([name, prior]) => h("div", { class: "row" },
    rename(["unknowns", name], name), priorInputs(["unknowns", name], table(prior)), remover(`unknown ${name}`, ["unknowns", name])));

  const equationRows = Object.entries(equations).map(([name, text]) => {
    const rendered = formulas.find((one) => one.name === name), exact = physics.findIndex((one) => one.equation === name);
    const toggle = (event) => (event.target.checked
      ? change([{ do: "set", path: ["physics", physics.length], value: { equation: name } }])
      : change([{ do: "remove", path: ["physics", exact] }]));
    return h("div", { class: "row equation-row" }, rename(["equations", name], name),
      input("formula", ["equations", name], String(text), { wide: true, text: true, placeholder: "u_t + k*u" }),
      remover(`equation ${name}`, ["equations", name]),
      h("div", { class: "rendered" }, rendered?.math ? math(rendered.math) : h("span", { class: "bad" }, rendered?.message ?? "")),
      h("label", { class: "tick" }, h("input", { type: "checkbox", checked: exact >= 0, "data-key": JSON.stringify([name, "exact"]), onchange: toggle }), h("span", {}, "is zero everywhere")),
      exact >= 0 && input("tolerance", ["physics", exact, "tolerance"], physics[exact].tolerance, { number: true, optional: true, placeholder: "chosen" }),
      exact >= 0 && input("points", ["physics", exact, "points"], physics[exact].points, { number: true, optional: true, placeholder: "chosen" }));
  });

  const sensorRows = sensors.map((given, i) => {
    const path = ["sensors", i], file = given.data, seen = columns[file], noise = given.noise;
    const kind = noise === undefined ? "column" : typeof noise === "object" && !Array.isArray(noise) ? "inferred" : typeof noise === "number" ? "number" : "other";
    const chooseNoise = (chosen) => {
      if (chosen === "column") remove([...path, "noise"]);
      else set([...path, "noise"], chosen === "inferred" ? { prior: "half_normal", sd: typeof noise === "number" ? noise : 0.1 } : 0.1);
    };
    const headers = (seen?.columns ?? []).map((column) => column.header);
    const role = (name) => {
      const now = table(given.columns)[name];
      return select(name === "value" ? "readings in column" : `${name} in column`, [...path, "columns", name], Array.isArray(now) ? now.join(" + ") : now ?? (headers.includes(name) ? name : ""),
        [...(headers.includes(name) ? [] : [["", "–"]]), ...headers], (chosen) => set([...path, "columns"], { ...table(given.columns), [name]: chosen }));
    };
    const choices = [...(file === undefined ? [["", "values in the text"]] : []), ...data.map((one) => one.name)];
    return h("div", { class: "card" },
      h("div", { class: "row" },
        input("reads", [...path, "quantity"], given.quantity, { text: true, list: "quantities", medium: true }),
        select("from", path, file ?? "", choices, (value) => value && set([...path, "data"], value)),
        kind === "other" ? h("p", { class: "note" }, "noise: ", h("code", {}, JSON.stringify(noise))) : select("noise", path, kind, [["number", "known"], ["inferred", "inferred"], ...(file ? [["column", "a column"]] : [])], chooseNoise),
        kind === "number" && input("sd", [...path, "noise"], noise, { number: true }),
        kind === "inferred" && priorInputs([...path, "noise"], noise),
        select("likelihood", path, typeof given.likelihood === "object" ? given.likelihood.kind : given.likelihood ?? "normal", known.likelihoods, (value) => (value === "normal" ? remove([...path, "likelihood"]) : set([...path, "likelihood"], value))),
        remover(`readings of ${given.quantity}`, path)),
      headers.length > 0 && h("details", { "data-key": `columns-${i}` }, h("summary", {}, `Columns of ${file}`), h("div", { class: "row" }, coordinates.map(role), role("value"))),
      more(given, OF_SENSORS));
  });

  const file = h("input", { type: "file", id: "upload", class: "hidden-file", accept: ".csv,.tsv,.txt,.dat,.xlsx,.xlsm,.npz,.parquet", onchange: () => file.files[0] && upload(file.files[0]) });
  const newSensor = { quantity: quantities[0] ?? "u", ...(data[0] ? { data: data[0].name } : { values: 0.0 }), noise: 0.1 };

  return h("div", { class: "form" },
    h("datalist", { id: "quantities" }, quantities.map((one) => h("option", { value: one }))),
    section("Title", null, h("div", { class: "row" }, input("title", ["title"], content.title, { wide: true, text: true }))),
    section("Coordinates", "Space and time alike, with their bounds.", domainRows, adder("Add a coordinate", ["domain", unused("x", coordinates)], [0.0, 1.0])),
    section("Fields", "The functions to find. Derivatives have names: u_x, u_xx, u_xt.", fieldRows, adder("Add a field", ["fields", unused("u", Object.keys(fields))], { surrogate: "gp" })),
    section("Unknown numbers", "Each with its prior: what you know before the readings.", unknownRows, adder("Add an unknown", ["unknowns", unused("k", Object.keys(unknowns))], { prior: "normal", mean: 0.0, sd: 1.0 })),
    section("Equations", null, equationRows, adder("Add an equation", ["equations", unused("law", Object.keys(equations))], `${Object.keys(fields)[0] ?? "u"}_${coordinates[0] ?? "x"}`)),
    section("Readings", null, sensorRows, h("div", { class: "buttons" }, adder("Add readings", ["sensors", sensors.length], newSensor), file, h("label", { for: "upload", class: "button" }, "Upload a data file"))),
    section("Inference", null, h("div", { class: "row" },
      select("method", ["inference"], inference.method ?? "", [["", "chosen for the problem"], ...known.methods], (value) => (value ? set(["inference", "method"], value) : remove(["inference", "method"]))),
      input("chains", ["inference", "chains"], inference.chains, { number: true, optional: true, placeholder: "usual" }),
      input("seed", ["inference", "seed"], inference.seed, { number: true, optional: true, placeholder: "0" })), more(inference, ["method", "chains", "seed"])));
}
