"""A module imports only from those before it in the way of the data."""

import ast
from pathlib import Path

import bpinn

ROOT = Path(bpinn.__file__).parent
ORDER = [
    "errors", "compiling", "arrays", "shown", "registry", "likelihoods.base", "likelihoods.each", "likelihoods",
    "portable", "native", "fields.activations", "fields.base", "fields.propagation", "checks", "fields.scales", "fields.mlp", "fields.kernels",
    "fields.karhunen_loeve", "fields.gaussian_process", "fields", "quantities", "affine", "measurements", "readings", "physics", "neutral", "problem",
    "evaluation", "sufficient", "parameters", "quantity_at", "monitor", "chunks", "conditional", "linear_readings", "model", "posterior", "coordinates", "labelled", "prediction", "prior", "reference",
    "rhat_ess", "convergence", "run_output", "advice", "diagnostics", "approximate", "modes", "populations",
    "methods.base", "methods.start", "methods.training", "methods.network", "methods.pinn", "methods.dropout",
    "methods.warmup", "methods.moves", "methods.frames", "methods.hamiltonian", "methods.hmc", "methods.proposals", "methods.pins", "methods.marginal", "methods.trajectories", "methods.collapsed", "methods.nuts", "methods.tempering", "methods.smc", "methods.last_layer",
    "methods.linearised", "methods.sghmc", "methods.descent", "methods.members", "methods.ensemble", "methods.ensemble_kalman",
    "methods.spaces", "methods.laplace", "methods.svgd", "methods.gaussian",
    "methods.approximation", "methods.vi", "methods.potential", "methods.flow", "methods",
    "run_folder.files", "run_folder.chains", "engine.records", "engine.interrupts", "engine.advance",
    "engine.scheduler", "engine.store", "engine.gather", "engine.stage_run", "engine", "progress", "progress_file",
    "storage", "run_folder.manifest", "cluster.arithmetic", "cluster.worker", "cluster.connection", "cluster.chains", "cluster", "summary", "solutions", "result", "arviz_tree", "run_folder.results", "preview", "choosing", "inference", "finding", "calibration.ranks", "calibration.simulations",
    "calibration",
    "forward.laws", "forward.system", "forward.pointwise", "forward.one_coordinate", "forward.lines", "forward.comparison", "forward",
    "design.candidates", "design.targets", "design.reduction", "design.separation", "design.several", "design.words", "design",
    "paper.problems", "paper",
    "plot.views", "plot.drawing", "plot.advice", "plot",
    "misfit", "criticism.residuals", "criticism.equations", "criticism.parameters", "criticism.own_weight", "criticism", "predictive", "reweighting", "notation", "habits", "expressions", "report.formatting",
    "report.figures", "report.images", "report.tables", "report.embedded", "report", "report.cells",
    "data_files.limits", "data_files.numbers", "data_files.timestamps", "data_files.table", "data_files.delimited",
    "data_files.binary", "data_files.zarr_groups", "data_files",
    "problem_file.toml_table", "problem_file.settings", "problem_file.rows", "problem_file.data", "problem_file.sensors", "problem_file",
    "run_folder.runs", "run_folder", "templates", "scatter", "grouping", "recognition", "draft", "pilot", "run_time", "paper.cases", "paper.claims", "paper.numbers", "paper.figures",
    "paper.settings", "paper.comparison", "paper.priors", "paper.catalogue", "paper.reproduction",
    "sweep.plan", "sweep.table", "sweep", "commands",
    "studio.text_edits", "studio.folder", "studio.guard", "studio.helper", "studio.worker", "studio.processes", "studio.app", "studio",
    "cli", "__main__",
]  # fmt: skip


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield place(name), path


def place(name):
    """Each likelihood has a module of its own, and all of them the same place."""
    of_one = name.startswith("likelihoods.") and name != "likelihoods.base"
    return "likelihoods.each" if of_one else name


def imports(path):
    """Modules of ours imported when the file is imported, not inside functions or for types only."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bpinn":
            inner = node.module.removeprefix("bpinn").removeprefix(".")
            whole = [f"{inner}.{alias.name}".lstrip(".") for alias in node.names]
            yield from {name if name in ORDER else place(inner) for name in whole}


def test_every_module_has_its_place():
    assert {name for name, _ in modules()} == set(ORDER)


def test_imports_follow_the_order():
    for name, path in modules():
        for imported in imports(path):
            assert ORDER.index(imported) < ORDER.index(name) or imported.startswith(name), f"{name} imports {imported}"


def test_blackjax_is_confined_to_methods():
    for name, path in modules():
        if not name.startswith("methods"):
            assert "blackjax" not in path.read_text() or name == "run_folder.manifest", name
