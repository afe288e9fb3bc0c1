// Runs: the list, what one of them is doing, and several beside each other.

import { field, intervals, plot, trace } from "./charts.js";
import { duration, h, number, withError } from "./dom.js";

const VERDICTS = { good: "good", care: "usable with care", bad: "do not trust" };
const STATES = { running: "running", stopping: "stopping", reporting: "writing the report", finished: "finished", stopped: "stopped", failed: "failed", elsewhere: "running in another program" };
export const isActive = (run) => ["running", "stopping", "reporting", "elsewhere"].includes(run.state);
const list = (value) => (Array.isArray(value) ? value : []);
const text = (value) => (typeof value === "string" ? value : "");

function badge(run) {
  const verdict = run.progress?.result?.verdict;
  if (run.state === "finished" && VERDICTS[verdict]) return h("span", { class: `badge ${verdict}` }, VERDICTS[verdict]);
  return h("span", { class: `badge ${isActive(run) ? "busy" : run.state === "failed" || run.failed ? "bad" : ""}` }, STATES[run.state] ?? run.state);
}

function brief(run) {
  const progress = run.progress ?? {};
  if (isActive(run)) return [text(progress.counted) || "starting", Number.isFinite(progress.left) && progress.left >= 1 ? `about ${duration(progress.left)} left` : ""].filter(Boolean).join(", ");
  const unknowns = Object.entries(progress.result?.unknowns ?? {}).slice(0, 3).map(([name, row]) => `${name} = ${withError(row?.mean, row?.sd)}`);
  return unknowns.join(", ") || (run.failed ? run.message : text(progress.counted));
}

/** The runs of a problem; one is shown, and those that are ticked are compared. */
export function runList({ runs, shown, compared, show, compare }) {
  if (!runs.length) return h("p", { class: "empty" }, "No run yet. “Run” starts one in a separate process, and this page shows its progress.");
  return h("ul", { class: "runs" }, runs.map((run) => h("li", { class: run.run === shown ? "shown" : "" },
    h("label", { class: "tick", title: "Compare" }, h("input", { type: "checkbox", checked: compared.has(run.run), "data-key": `compare-${run.run}`, "aria-label": `Compare ${run.run}`, disabled: run.state === "failed", onchange: (event) => compare(run.run, event.target.checked) })),
    h("button", { type: "button", class: "plain", "data-key": `show-${run.run}`, "aria-current": run.run === shown ? "true" : null, onclick: () => show(run.run) },
      h("strong", {}, run.run), badge(run), h("span", { class: "note" }, brief(run))))));
}

function stops(run) {
  if (run.stops === 0) return "Stop";
  return run.stops === 1 ? "Stop now, without a preview" : "Kill";
}

/** What one run is doing, or what came of it. */
export function runView({ run, about, act }) {
  const progress = run.progress ?? {}, result = progress.result, active = isActive(run);
  const button = (does, name, kind = "") => h("button", { type: "button", class: kind, "data-key": `do-${does}`, onclick: () => act(does) }, name);
  const report = run.report && h("a", { class: "button primary", href: run.report, target: "_blank", rel: "noopener", "data-key": "open-report" }, "Open the report");
  const buttons = h("div", { class: "buttons" },
    (run.state === "running" || run.state === "stopping") && button("stop", stops(run), "stop"),
    run.state === "stopped" && run.exists && button("resume", "Resume", "primary"),
    !active && report,
    !active && run.exists && (run.report || result || progress.bands) && button("report", run.report ? "Write the report again" : "Write the report"));
  return h("section", { class: "run", "aria-label": `Run ${run.run}` },
    h("header", {}, h("h2", {}, run.run), badge(run), buttons),
    active && meter(run, progress),
    run.message && h("p", { class: `message ${run.failed ? "bad" : "note"}`, role: "status" }, run.message),
    !active && result && verdict(result),
    mixing(progress, result),
    list(progress.unknowns).length > 0 && h("div", { class: "unknowns" }, list(progress.unknowns).map(unknown)),
    h("div", { class: "charts" }, list(progress.bands).map((band) => field(band, about?.readings, active || !result)).flat().filter(Boolean)),
    list(run.log).length > 0 && h("details", { "data-key": "log" }, h("summary", {}, "Log"), h("pre", {}, run.log.join("\n"))));
}

function meter(run, progress) {
  const known = progress.state === "running" && progress.most > 0 && run.state === "running";
  const left = !Number.isFinite(progress.left) ? "" : progress.left >= 1 ? `, about ${duration(progress.left)} left` : ", almost done";
  const said = run.state === "elsewhere" ? "Another program runs it; stop it there." : run.state === "reporting" ? "Writing the report; this takes some seconds." : run.state === "stopping" ? "Stopping; what the chains have done is kept."
    : progress.state === "ended" ? "The draws are done; the report is being written." : known ? `${text(progress.counted)}${left}` : "Starting: reading the problem and compiling.";
  const extra = [known && Number.isFinite(progress.seconds) ? `${duration(progress.seconds)} so far` : "", ...list(progress.figures).map(text), ...list(progress.preview).map(text)].filter(Boolean).join(" · ");
  return h("div", { class: "meter" }, h("progress", { max: known ? progress.most : null, value: known ? progress.done : null, "aria-label": "Progress" }),
    h("p", { role: "status" }, said), extra && h("p", { class: "note" }, extra));
}

function verdict(result) {
  const kind = VERDICTS[result.verdict] ? result.verdict : "care";
  return h("div", { class: `verdict ${kind}` }, h("strong", {}, VERDICTS[kind], result.interrupted ? ", stopped early" : ""), h("ul", {}, list(result.reasons).map((reason) => h("li", {}, text(reason)))));
}

function mixing(progress, result) {
  const facts = [];
  const judge = (value, good, care) => (value <= good ? "good" : value <= care ? "care" : "bad");
  if (Number.isFinite(progress.rhat)) facts.push(["worst R-hat", progress.rhat.toFixed(3), judge(progress.rhat, 1.01, 1.05), "should be below 1.01"]);
  if (Number.isFinite(progress.ess)) facts.push(["effective draws", String(Math.round(progress.ess)), judge(-progress.ess, -400, -100), "should be at least 400"]);
  if (result) facts.push(["draws", `${result.chains} × ${result.draws}`, "", "chains × draws"],
    ["time", duration(Object.values(result.seconds ?? {}).reduce((sum, one) => sum + one, 0)), "", "compiling included"]);
  return facts.length > 0 && h("dl", { class: "facts" }, facts.map(([name, value, kind, note]) => h("div", {}, h("dt", {}, name), h("dd", { class: kind }, value), h("dd", { class: "note" }, note))));
}

function unknown(row) {
  return h("div", { class: "unknown" }, h("span", { class: "name" }, text(row.name)), h("span", { class: "value" }, withError(row.mean, row.sd)),
    h("span", { class: "note" }, `95% [${number(row.low)}, ${number(row.high)}]${Number.isFinite(row.rhat) ? `, R-hat ${row.rhat.toFixed(3)}` : ""}`), trace(text(row.name), row.trace));
}

/** Several runs: their unknowns over one axis, their fields, and the settings in which they differ. */
export function comparison(runs) {
  const names = [...new Set(runs.flatMap((run) => list(run.progress?.unknowns).map((row) => row.name)))];
  const rows = (name) => runs.map((run) => ({ run: run.run, ...list(run.progress?.unknowns).find((row) => row.name === name) }));
  const settings = runs.map((run) => run.settings ?? {});
  const keys = [...new Set(settings.flatMap(Object.keys))].filter((key) => new Set(settings.map((one) => JSON.stringify(one[key]))).size > 1);
  const shown = (value) => (value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));
  const result = (run) => run.progress?.result ?? {};
  const line = (title, cell, code = false) => h("tr", {}, h("th", { scope: "row" }, code ? h("code", {}, title) : title), runs.map((run, i) => h("td", {}, cell(run, i))));
  const fields = [...new Set(runs.flatMap((run) => list(run.progress?.bands).filter((band) => Object.keys(band.at ?? {}).length === 1).map((band) => band.name)))];
  return h("section", { class: "comparison", "aria-label": "Comparison" }, h("h2", {}, `${runs.length} runs compared`), h("div", { class: "beside" },
    h("div", { class: "scroll", tabindex: "0" }, h("table", {},
      h("thead", {}, h("tr", {}, h("td", {}), runs.map((run, i) => h("th", { scope: "col" }, h("i", { class: `key line run-${i % 6}` }), run.run)))),
      h("tbody", {}, line("verdict", (run) => badge(run)),
        names.map((name) => line(name, (run) => { const row = list(run.progress?.unknowns).find((one) => one.name === name); return row ? withError(row.mean, row.sd) : "–"; })),
        line("worst R-hat of an unknown", (run) => { const all = list(run.progress?.unknowns).map((row) => row.rhat).filter(Number.isFinite); return all.length ? Math.max(...all).toFixed(3) : "–"; }),
        line("draws", (run) => (result(run).draws ? `${result(run).chains} × ${result(run).draws}` : "–")),
        line("time", (run) => duration(Object.values(result(run).seconds ?? {}).reduce((sum, one) => sum + one, 0) || NaN))),
      keys.length > 0 && h("tbody", {}, h("tr", {}, h("th", { colspan: runs.length + 1, class: "part" }, "Settings that differ")), keys.map((key) => line(key, (run, i) => shown(settings[i][key]), true)))),
      keys.length === 0 && h("p", { class: "note" }, "The problem files of these runs are the same.")),
    h("div", { class: "charts" }, names.map((name) => intervals(`${name}: mean and 95% interval`, rows(name))),
      fields.map((name) => {
        const series = runs.flatMap((run, i) => {
          const band = list(run.progress?.bands).find((one) => one.name === name), along = Object.keys(band?.at ?? {})[0];
          return band ? [{ kind: "band", x: band.at[along], low: band.low, high: band.high, class: `run-${i % 6}` }, { kind: "line", x: band.at[along], y: band.mean, class: `run-${i % 6}`, name: run.run }] : [];
        });
        const first = runs.map((run) => list(run.progress?.bands).find((one) => one.name === name)).find(Boolean);
        return plot({ title: `${name}: mean and 95% interval`, xlabel: Object.keys(first.at)[0], ylabel: name, series });
      }))));
}
