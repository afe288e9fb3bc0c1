// The page: which problem is open, what is typed, what the check says of it, and what runs are doing.

import { plot, readings } from "./charts.js";
import { api, doing, duration, fill, h, math, part, say } from "./dom.js";
import { form } from "./form.js";
import { comparison, isActive, runList, runView } from "./runs.js";

const TABS = { problem: "Problem", prior: "Prior", runs: "Runs" };
const PAUSE = 350; // milliseconds without a key before a text is checked
const main = document.getElementById("main");
const state = { studio: null, known: null, problem: null };

// --- which page ---

const place = () => {
  const [name, tab, run] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { name: name || null, tab: TABS[tab] ? tab : "problem", run: run || null };
};
const go = (name, tab = "problem", run = "") => { location.hash = `#/${[name, tab, run].filter(Boolean).map(part).join("/")}`; };
const isUnsaved = () => state.problem !== null && state.problem.text !== state.problem.saved;

async function open() {
  const { name, tab, run } = place();
  if (isUnsaved() && name !== state.problem.name && !confirm("This problem has changes that are not saved. Leave without them?")) {
    drawProblems();
    go(state.problem.name, state.problem.tab, state.problem.shown);
    return;
  }
  if (!state.studio) state.studio = await api("studio");
  if (name === null) {
    state.problem = null;
    state.studio = await api("studio");
    drawProblems();
    drawStart();
    return;
  }
  if (state.problem?.name !== name) {
    const found = await api(`problems/${part(name)}`);
    state.problem = { ...found, saved: found.text, check: null, asText: state.problem?.asText ?? false, columns: {}, runs: [], details: {}, about: {}, compared: new Set(), prior: null, estimate: null, asked: 0 };
    check();
  }
  Object.assign(state.problem, { tab, shown: run });
  drawProblems();
  drawProblem();
  if (!state.known) doing(known)();
  await watch();
  if (tab === "prior") await drawsOfPrior();
}

/** What the form offers; the first answer takes some seconds, in which the worker starts. */
async function known() {
  state.known = await api("known");
  if (state.problem) drawForm();
}

function drawProblems() {
  const names = (state.studio?.problems ?? []).map((one) => one.name), now = state.problem?.name;
  document.title = now ? `${now} · bpinn studio` : "bpinn studio";
  fill(document.getElementById("problems"), h("label", { class: "chooser" }, h("span", {}, "Problem"),
    h("select", { "data-key": "chooser", onchange: (event) => { location.hash = event.target.value ? `#/${part(event.target.value)}` : "#/"; } },
      h("option", { value: "", selected: !now }, "All problems"), names.map((name) => h("option", { value: name, selected: name === now }, name)))));
}

// --- all problems ---

function drawStart() {
  const { problems, templates, folder } = state.studio;
  const name = h("input", { name: "name", required: true, size: 20, placeholder: "cooling", autocomplete: "off", spellcheck: "false", "data-key": "new-name" });
  const template = h("select", { "data-key": "new-template" }, Object.entries(templates).map(([key, about]) => h("option", { value: key }, `${key}: ${about}`)));
  const file = h("input", { type: "file", required: true, accept: ".csv,.tsv,.txt,.dat,.xlsx,.xlsm,.npz,.parquet", "data-key": "new-file" });
  const drafted = h("input", { required: true, size: 20, placeholder: "my-problem", autocomplete: "off", spellcheck: "false", "data-key": "draft-name" });
  const fromTemplate = doing(async () => {
    const made = await api("new", { name: name.value.trim(), template: template.value });
    state.studio = await api("studio");
    go(made.name);
  });
  const fromFile = doing(async () => {
    const made = await api(`draft?name=${part(drafted.value.trim())}&file=${part(file.files[0].name)}`, undefined, file.files[0]);
    state.studio = await api("studio");
    go(made.name);
    say(made.said.join(". "), "good");
  });
  fill(main, h("div", { class: "start" },
    h("section", {}, h("h1", {}, folder), problems.length
      ? h("ul", { class: "problem-list" }, problems.map((one) => h("li", {}, h("a", { href: `#/${part(one.name)}` }, h("strong", {}, one.name),
        h("span", { class: "note" }, one.running ? "running" : one.runs ? `${one.runs} run${one.runs > 1 ? "s" : ""}` : "no run yet")))))
      : h("p", { class: "empty" }, "This folder has no problem yet. Start from your own readings, or from an example.")),
    h("section", {}, h("h2", {}, "From my readings"), h("p", { class: "note" }, "A table of numbers as it comes from the instrument: CSV, text, Excel. The draft has its columns, ranges and scatter; you add the equation."),
      h("form", { class: "row", onsubmit: fromFile }, h("label", {}, h("span", {}, "file"), file), h("label", {}, h("span", {}, "name"), drafted), h("button", { class: "primary" }, "Draft a problem"))),
    h("section", {}, h("h2", {}, "From an example"),
      h("form", { class: "row", onsubmit: fromTemplate }, h("label", { class: "whole" }, h("span", {}, "example"), template), h("label", {}, h("span", {}, "name"), name), h("button", { class: "primary" }, "Create")))));
}

// --- one problem ---

function drawProblem() {
  const problem = state.problem, { tab } = problem;
  const tabs = h("nav", { class: "tabs", "aria-label": "Parts of the problem" }, Object.entries(TABS).map(([key, title]) =>
    h("a", { href: `#/${part(problem.name)}/${key}`, "data-key": `tab-${key}`, "aria-current": key === tab ? "page" : null }, title, key === "runs" && problem.runs.some(isActive) ? h("span", { class: "pulse", title: "running" }) : null)));
  const body = { problem: problemTab, prior: priorTab, runs: runsTab }[tab]();
  fill(main, h("div", { class: "head" }, h("div", {}, h("h1", { id: "title" }, titleOf(problem)), h("p", { class: "note path" }, `${problem.name}/problem.toml`)),
    h("div", { class: "buttons", id: "actions" })), tabs, body);
  drawActions();
  drawChecked();
}

const titleOf = (problem) => problem.check?.title ?? problem.check?.content?.title ?? problem.name;

function drawActions() {
  const problem = state.problem, place_ = document.getElementById("actions");
  if (!place_) return;
  document.getElementById("title").textContent = titleOf(problem);
  const unsaved = isUnsaved();
  fill(place_, h("button", { type: "button", "data-key": "save", disabled: !unsaved, title: "Ctrl+S", onclick: doing(save) }, unsaved ? "Save" : "Saved"),
    h("button", { type: "button", class: "primary", "data-key": "run", disabled: Boolean(problem.check?.message) || !problem.check, title: "Ctrl+Enter", onclick: doing(start) }, "Run"));
}

function problemTab() {
  const problem = state.problem;
  const mode = (asText, title) => h("button", { type: "button", "data-key": `mode-${asText}`, "aria-pressed": String(problem.asText === asText), onclick: () => { problem.asText = asText; drawProblem(); } }, title);
  return h("div", { class: "columns" },
    h("section", { class: "editor", "aria-label": "Statement" }, h("div", { class: "modes", role: "group", "aria-label": "Edit as" }, mode(false, "Form"), mode(true, "Text")), problem.asText ? textEditor() : h("div", { id: "form" })),
    h("section", { class: "checked", "aria-label": "Check" }, h("div", { id: "verdict", role: "status", "aria-live": "polite" }), h("div", { id: "seen" })));
}

function textEditor() {
  const problem = state.problem;
  const numbers = h("pre", { class: "numbers", "aria-hidden": "true", id: "numbers" });
  const area = h("textarea", { id: "text", "data-key": "text", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", "aria-label": "problem.toml", value: problem.text,
    oninput: () => { problem.text = area.value; drawActions(); later(); drawNumbers(); },
    onscroll: () => { numbers.scrollTop = area.scrollTop; } });
  queueMicrotask(drawNumbers);
  return h("div", { class: "text" }, numbers, area);
}

function drawNumbers() {
  const place_ = document.getElementById("numbers");
  if (!place_) return;
  const wrong = state.problem.check?.line;
  fill(place_, state.problem.text.split("\n").map((_, i) => h("span", { class: i + 1 === wrong ? "wrong" : "" }, `${i + 1}\n`)));
  place_.scrollTop = document.getElementById("text").scrollTop;
}

let waiting = 0;
function later() {
  clearTimeout(waiting);
  waiting = setTimeout(check, PAUSE);
}

/** Check the text as it is now; an answer to an older text is dropped. */
async function check() {
  const problem = state.problem, asked = (problem.asked += 1);
  try {
    took(problem, asked, await api(`problems/${part(problem.name)}/check`, { text: problem.text }));
  } catch (error) {
    took(problem, asked, { message: error.message, content: problem.check?.content ?? {}, formulas: [] });
  }
}

function took(problem, asked, answer) {
  if (problem !== state.problem || asked !== problem.asked) return;
  problem.check = answer;
  if (problem.estimate?.text !== problem.text) problem.estimate = null;
  if (document.getElementById("verdict") || document.getElementById("actions")) {
    drawActions();
    drawChecked();
    drawNumbers();
  }
  lookAtData(problem);
}

/** The columns of the data files that the sensors name, for the form. */
async function lookAtData(problem) {
  const there = problem.data.map((one) => one.name);
  const named = (Array.isArray(problem.check?.content?.sensors) ? problem.check.content.sensors : []).map((one) => one?.data);
  for (const file of new Set(named)) {
    if (!there.includes(file) || problem.columns[file]) continue;
    problem.columns[file] = { columns: [] };
    problem.columns[file] = await api(`problems/${part(problem.name)}/data/${part(file)}`).catch(() => ({ columns: [] }));
    if (problem === state.problem) drawForm();
  }
}

function drawForm() {
  const problem = state.problem, place_ = document.getElementById("form");
  if (!place_) return;
  if (!problem.check || !state.known) return fill(place_, h("p", { class: "note" }, "Reading the problem."));
  if (!Object.keys(problem.check.content).length) return fill(place_, h("p", { class: "note" }, "The form cannot be shown: the text is not valid TOML. Fix it in the text first."));
  const changing = doing(change);
  const kept = (edits) => { problem.editing = changing(edits); }; // saving waits for it
  fill(place_, form({ ...problem.check, data: problem.data, columns: problem.columns, known: state.known, change: kept, upload: doing(upload) }));
}

async function change(edits) {
  const problem = state.problem, asked = (problem.asked += 1);
  const answer = await api(`problems/${part(problem.name)}/edit`, { text: problem.text, edits });
  if (asked !== problem.asked) return;
  problem.text = answer.text;
  took(problem, asked, answer);
}

async function upload(file) {
  const problem = state.problem;
  const seen = await api(`problems/${part(problem.name)}/upload?file=${part(file.name)}`, undefined, file);
  problem.data = (await api(`problems/${part(problem.name)}`)).data;
  problem.columns[seen.name] = seen;
  say([`${seen.name}: ${seen.rows} rows, columns ${seen.columns.map((one) => one.name).join(", ")}`, ...seen.notes].join(". "), "good");
  drawForm();
  check();
}

function drawChecked() {
  drawForm();
  const problem = state.problem, found = problem.check, verdict = document.getElementById("verdict"), seen = document.getElementById("seen");
  if (!verdict) return;
  if (!found) return fill(verdict, h("p", { class: "verdict" }, "Checking."));
  seen.classList.toggle("stale", Boolean(found.message));
  if (found.message) {
    const jump = found.line && h("button", { type: "button", "data-key": "jump", onclick: () => toLine(found.line) }, `Show line ${found.line}`);
    return fill(verdict, h("div", { class: "verdict bad" }, h("strong", {}, "Not yet"), said(found.message), jump));
  }
  const estimate = problem.estimate?.facts;
  fill(verdict, h("div", { class: "verdict good" }, h("strong", {}, "Ready to run"), h("p", {}, found.method),
    estimate ? h("p", {}, `${estimate.parameters} parameters; ${estimate.between ? `a run takes about ${estimate.between.map(duration).join(" to ")} on an idle machine` : "its time cannot be told beforehand"}`)
      : h("button", { type: "button", "data-key": "estimate", disabled: problem.estimate?.asked, onclick: doing(estimated) }, problem.estimate?.asked ? "Measuring" : "How long would it take?")));
  fill(seen, found.equations.length > 0 && h("div", { class: "equations" }, found.equations.map((one) => [one.math ? h("div", { class: "equation" }, math(one.math)) : h("pre", {}, one.code),
    one.stated.map(([said, where]) => h("div", { class: "equation stated" }, math(said), h("span", { class: "note" }, where)))])),
    h("dl", { class: "statement" }, h("dt", {}, "Fields"), found.fields.map(([name, inputs, about]) => h("dd", {}, math(name), `(${inputs.join(", ")}): ${about}`)),
      found.priors.length > 0 && [h("dt", {}, "Priors"), found.priors.map(([name, about]) => h("dd", {}, math(name), `: ${about}`))]),
    found.notes.length > 0 && h("ul", { class: "note" }, found.notes.map((note) => h("li", {}, note))),
    h("div", { class: "charts" }, found.readings.filter((group) => !group.exact).map(readings)));
}

/** A message: its sentence, and below it the formula with a mark, if it has one. */
function said(message) {
  const [sentence, ...formula] = message.split("\n");
  return h("div", { id: "message" }, h("p", {}, sentence), formula.length > 0 && h("pre", {}, formula.join("\n")));
}

function toLine(line) {
  const problem = state.problem;
  problem.asText = true;
  drawProblem();
  const area = document.getElementById("text"), before = problem.text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(before, before + problem.text.split("\n")[line - 1].length);
}

async function estimated() {
  const problem = state.problem, { text } = problem;
  problem.estimate = { asked: true, text };
  drawChecked();
  try {
    problem.estimate = { text, facts: await api(`problems/${part(problem.name)}/estimate`, { text }) };
  } catch (error) {
    problem.estimate = null;
    throw error;
  } finally {
    if (problem === state.problem) drawChecked();
  }
}

async function save() {
  const problem = state.problem, typing = document.activeElement;
  if (typing?.dataset?.dirty && typing.tagName === "INPUT") typing.dispatchEvent(new Event("change"));
  await problem.editing;
  const { text } = problem;
  if (text === problem.saved) return;
  problem.revision = (await api(`problems/${part(problem.name)}/save`, { text, revision: problem.revision })).revision;
  problem.saved = text;
  drawActions();
}

// --- the prior ---

function priorTab() {
  return h("section", { id: "prior", "aria-label": "Prior" });
}

async function drawsOfPrior() {
  const problem = state.problem, { text } = problem, place_ = document.getElementById("prior");
  if (!place_) return;
  if (problem.prior?.text !== text) {
    problem.prior = { text };
    fill(place_, h("p", { role: "status" }, "Drawing from the prior; this takes some seconds."));
    try {
      problem.prior.found = await api(`problems/${part(problem.name)}/prior`, { text });
    } catch (error) {
      problem.prior = null;
      fill(place_, h("p", { class: "verdict bad", role: "status" }, error.message));
      return;
    }
  }
  const again = document.getElementById("prior"), found = problem.prior?.found;
  if (!again || problem !== state.problem || !found) return;
  fill(again, h("p", { class: "note" }, "What the prior of fields, unknowns and noise expects before any reading: lines are draws from it, the band holds 95% of them."),
    h("div", { class: `verdict ${found.possible ? "good" : "care"}`, role: "status" }, h("strong", {}, found.possible ? "The prior could have produced these readings" : "The prior makes these readings improbable"),
      h("ul", {}, found.groups.map((group) => h("li", {}, group.said)), !found.groups.length && h("li", {}, found.said))),
    h("div", { class: "charts" }, found.groups.map((group) => plot({ title: `${group.name}: readings over the prior`, xlabel: group.along ?? "readings, in the order of their values", ylabel: group.label.length < 14 ? group.label : group.name, height: 280, focus: true,
      series: [{ kind: "band", x: group.x, low: group.low, high: group.high, name: "95% of the prior" }, ...group.draws.map((draw, i) => ({ kind: "line", x: group.x, y: draw, class: "draw", loose: true, name: i ? null : "draws" })),
        { kind: "dots", x: group.at, y: group.values, sd: group.sd, name: "readings" }] }))));
}

// --- runs ---

function runsTab() {
  return h("div", { class: "runs-tab" }, h("section", { id: "run-list", "aria-label": "Runs" }), h("div", { id: "run-view" }), h("div", { id: "run-comparison" }));
}

async function start() {
  const problem = state.problem;
  await save();
  const { run } = await api(`problems/${part(problem.name)}/run`, {});
  delete problem.details[run];
  delete problem.about[run];
  go(problem.name, "runs", run);
}

let timer = 0, turn = 0;
/** Ask how the runs are doing, and go on asking: every second while one is active. */
async function watch() {
  clearTimeout(timer);
  const problem = state.problem, mine = (turn += 1);
  if (!problem) return;
  try {
    problem.runs = (await api(`problems/${part(problem.name)}/runs`)).runs;
    const shown = problem.shown ?? problem.runs[0]?.run, now = problem.runs.find((one) => one.run === shown);
    if (problem.tab === "runs" && now) await detail(problem, now);
    if (problem === state.problem && mine === turn) drawRuns();
  } catch (error) {
    if (mine === turn) say(error.message);
  }
  if (problem === state.problem && mine === turn) timer = setTimeout(watch, problem.runs.some(isActive) ? 1000 : 5000);
}

async function detail(problem, now, fresh = isActive(now)) {
  const url = `problems/${part(problem.name)}/runs/${part(now.run)}`, before = problem.details[now.run];
  if (!before || fresh || isActive(before) || before.state !== now.state || before.report !== now.report) problem.details[now.run] = await api(url);
  if (problem.details[now.run].exists && !problem.about[now.run]) problem.about[now.run] = await api(`${url}/about`).catch(() => ({ settings: {}, readings: [] }));
}

let drawn = "";
function drawRuns() {
  const problem = state.problem, place_ = document.getElementById("run-list");
  drawTabs();
  if (!place_) return;
  const shown = problem.shown ?? problem.runs[0]?.run, run = problem.details[shown];
  const now = JSON.stringify([problem.runs, shown, run, [...problem.compared], Boolean(problem.about[shown])]);
  if (now === drawn && document.getElementById("run-view").childElementCount) return;
  drawn = now;
  fill(place_, runList({ runs: problem.runs, shown, compared: problem.compared, show: (name) => go(problem.name, "runs", name), compare: doing(compare) }));
  fill(document.getElementById("run-view"), run && problem.runs.some((one) => one.run === shown) ? runView({ run, about: problem.about[shown], act: doing((does) => act(shown, does)) }) : null);
}

function drawTabs() {
  const tab = document.querySelector('[data-key="tab-runs"]'), active = state.problem.runs.some(isActive);
  if (!tab) return;
  tab.querySelector(".pulse")?.remove();
  if (active) tab.append(h("span", { class: "pulse", title: "running" }));
}

async function act(run, does) {
  const problem = state.problem;
  problem.details[run] = await api(`problems/${part(problem.name)}/runs/${part(run)}/${does}`, {});
  await watch();
}

async function compare(run, wanted) {
  const problem = state.problem;
  if (wanted) problem.compared.add(run);
  else problem.compared.delete(run);
  const place_ = document.getElementById("run-comparison");
  const chosen = problem.runs.filter((one) => problem.compared.has(one.run));
  for (const one of chosen) await detail(problem, one);
  if (problem !== state.problem) return;
  fill(place_, chosen.length > 1 ? comparison(chosen.map((one) => ({ ...problem.details[one.run], settings: problem.about[one.run]?.settings }))) : null);
}

// --- keys, and leaving the page ---

addEventListener("hashchange", doing(open));
addEventListener("keydown", (event) => {
  if (!state.problem || !(event.ctrlKey || event.metaKey)) return;
  if (event.key.toLowerCase() === "s") doing(save)(event);
  if (event.key === "Enter" && !document.querySelector('[data-key="run"]')?.disabled) doing(start)(event);
});
addEventListener("beforeunload", (event) => {
  if (isUnsaved()) event.preventDefault();
});
doing(open)();
