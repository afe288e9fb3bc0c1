"""Wrong calls, each with the sentence a user gets: where, what came, what is expected, how to fix it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bpinn as bp

X = np.linspace(0.0, 1.0, 5)


def sensors(quantity="u", at=None, values=None, noise=0.1, **options):
    at = {"x": X} if at is None else at
    return bp.Sensors(quantity, at, np.zeros(5) if values is None else values, noise, **options)


def problem(domain=None, fields=None, unknowns=None, **groups):
    return bp.Problem(
        domain={"x": (0.0, 1.0)} if domain is None else domain,
        fields={"u": bp.MLP(hidden=(3,))} if fields is None else fields,
        unknowns=unknowns,
        sensors=groups or {"u": sensors()},
    )


def infer(given, method):
    return bp.infer(given, method, seed=0, progress=False)


def with_nan(value):
    values = np.zeros(5)
    values[2] = value
    return values


def plain_numpy(u):
    return np.sin(u)


def branching(u):
    return u if u[0] > 0 else -u


WRONG = {
    # the domain
    "no domain": (lambda: problem(domain={}), r"domain: expected a dictionary of coordinates with bounds.*got \{\}"),
    "domain is a list": (lambda: problem(domain=[(0, 1)]), r"domain: expected a dictionary"),
    "one bound": (lambda: problem(domain={"x": (0.0,)}), r"coordinate 'x' needs two bounds \(low, high\), got \(0.0,\)"),
    "bounds reversed": (lambda: problem(domain={"x": (1.0, 0.0)}), r"'x' needs finite bounds with low < high, got \(1, 0\)"),
    "infinite bound": (lambda: problem(domain={"x": (0.0, np.inf)}), r"finite bounds"),
    "bad identifier": (lambda: problem(domain={"my x": (0, 1)}), r"coordinate 'my x': a name must be a Python identifier"),
    "keyword": (lambda: problem(domain={"lambda": (0, 1)}), r"'lambda': a name must be a Python identifier"),
    # the fields
    "no fields": (lambda: problem(fields={}), r"fields: expected a dictionary of surrogates"),
    "field is a class": (lambda: problem(fields={"u": bp.MLP}), r"field 'u': expected a surrogate such as bp.MLP\(\)"),
    "unknown input": (lambda: problem(fields={"u": bp.MLP(inputs=("y",))}), r"input 'y' is not a coordinate; coordinates are x"),
    "repeated input": (lambda: problem(fields={"u": bp.MLP(inputs=("x", "x"))}), r"inputs \('x', 'x'\) repeat a coordinate"),
    "no inputs": (lambda: problem(fields={"u": bp.MLP(inputs=())}), r"no inputs; make it an unknown instead"),
    "negative width": (lambda: bp.MLP(hidden=(10, -1)), r"MLP: hidden widths must be positive whole numbers, got \(10, -1\)"),
    "fractional width": (lambda: bp.MLP(hidden=(10.5,)), r"hidden widths must be positive whole numbers"),
    "wrong activation": (lambda: bp.MLP(activation="relu6"), r"activation 'relu6' is not known; use one of tanh, sin, swish, gelu"),
    "activation is a number": (lambda: bp.MLP(activation=3), r"activation must be a name or a function, got 3"),
    "too many sds": (lambda: bp.MLP(hidden=(3,), weight_sd=(1, 1, 1)), r"1 hidden layers have 2 weight matrices, but weight_sd has 3"),
    "zero sd": (lambda: bp.MLP(bias_sd=0.0), r"MLP: bias_sd must be positive and finite, got 0.0"),
    "sd is text": (lambda: bp.MLP(weight_sd="big"), r"weight_sd must be a number, or one per layer, or a prior such as dist.HalfNormal\(1.0\), got 'big'"),
    "sd is a class": (lambda: bp.MLP(bias_sd=dist.HalfNormal), r"MLP: bias_sd must be a number.*; call it, such as HalfNormal\(...\)"),
    "sd may be negative": (lambda: bp.MLP(weight_sd=dist.Normal(1.0, 1.0)), r"MLP: weight_sd: Normal allows negative values; use a positive prior"),
    "sd of a layer may be negative": (lambda: bp.MLP(hidden=(3,), weight_sd=(1.0, dist.Normal())), r"weight_sd of layer 2: Normal allows negative values"),
    "sd of a layer is text": (lambda: bp.MLP(hidden=(3,), weight_sd=(dist.HalfNormal(), "1")), r"weight_sd of layer 2 must be a positive number or a positive prior, got '1'"),
    "discrete sd": (lambda: bp.MLP(weight_sd=dist.Poisson(3.0)), r"MLP: weight_sd: the prior Poisson is discrete"),
    "too many priors": (lambda: bp.MLP(hidden=(), weight_sd=(1, dist.HalfNormal())), r"0 hidden layers have 1 weight matrices, but weight_sd has 2"),
    "a prior of the wrong shape": (lambda: bp.MLP(hidden=(3,), weight_sd=dist.HalfNormal(jnp.ones(3))), r"weight_sd has a prior of shape \(3,\); give one scalar prior for all layers, or one of shape \(2,\)"),
    "a vector for one layer": (lambda: bp.MLP(hidden=(3,), bias_sd=(1, dist.HalfNormal(jnp.ones(2)))), r"each layer needs a number or a scalar prior, got a prior of shape \(2,\)"),
    "a layer without sd": (lambda: bp.MLP(hidden=(3,), bias_sd=(None, dist.HalfNormal())), r"each layer needs a number or a scalar prior, got None"),
    "name of a noise is a field's": (lambda: bp.Problem({"x": (0.0, 1.0)}, {"u": bp.MLP(), "noise_u": bp.MLP()}, {"u": bp.Sensors("u", {"x": [0.0]}, [0.0], noise=dist.HalfNormal())}), r"the inferred noise gets the name 'noise_u', which is already taken"),
    "name of an sd is taken": (lambda: problem(fields={"u": bp.MLP(weight_sd=dist.HalfNormal())}, unknowns={"weight_sd_u": dist.Normal()}), r"its inferred weight_sd gets the name 'weight_sd_u', which is already taken"),
    # the unknowns
    "prior is a number": (lambda: problem(unknowns={"k": 1.0}), r"unknown 'k': the prior must be a numpyro distribution.*got float"),
    "prior is a class": (lambda: problem(unknowns={"k": dist.Normal}), r"call it, such as Normal\(\.\.\.\)"),
    "discrete prior": (lambda: problem(unknowns={"k": dist.Poisson(3.0)}), r"the prior Poisson is discrete; use a continuous distribution"),
    "negative scale": (lambda: problem(unknowns={"k": dist.Normal(0.0, -1.0, validate_args=False)}), r"Normal has scale=-1.0, which must be"),
    "NaN parameter": (lambda: problem(unknowns={"k": dist.Normal(np.nan, 1.0, validate_args=False)}), r"Normal has loc=nan"),
    "empty interval": (lambda: problem(unknowns={"k": dist.Uniform(1.0, 0.0)}), r"the prior Uniform has no finite density"),
    "matrix prior": (lambda: problem(unknowns={"k": dist.Normal(0.0, 1.0).expand([2, 2])}), r"the prior has shape \(2, 2\); use a scalar or a vector"),
    # names
    "field and unknown": (lambda: problem(unknowns={"u": dist.Normal()}), r"name 'u' is both a field and an unknown; rename one"),
    "field and coordinate": (lambda: problem(fields={"x": bp.MLP()}), r"name 'x' is both a coordinate and a field"),
    "looks like a derivative": (lambda: problem(unknowns={"u_x": dist.Normal()}), r"unknown 'u_x' could also be a derivative of field 'u'; rename one"),
    "unknown argument": (lambda: problem(f=sensors(lambda u, kk: u * kk)), r"sensors 'f': argument of <lambda>: 'kk' is not known.*Known names are fields u"),
    "typing error": (lambda: problem(unknowns={"rate": dist.Normal()}, f=sensors(lambda u, rte: u * rte)), r"did you mean 'rate'\?"),
    "unknown quantity": (lambda: problem(f=sensors("v")), r"sensors 'f': 'v' is not known"),
    "ambiguous derivative": (
        lambda: problem(domain={"x": (0, 1), "xx": (0, 1)}, f=sensors("u_xx", at={"x": X, "xx": X})),
        r"'u_xx' is ambiguous",
    ),
    "derivative in a missing coordinate": (lambda: problem(f=sensors("u_y")), r"'u_y' is not known"),
    "no arguments": (lambda: problem(f=sensors(lambda: 1.0)), r"has no arguments; name the quantities it depends on"),
    "star arguments": (lambda: problem(f=sensors(lambda *args: args[0])), r"has the argument \*args; list each field"),
    "quantity is a number": (lambda: problem(f=sensors(3.0)), r"expected a name such as 'u', or a function whose arguments are names, got float"),
    "periodic along nothing": (lambda: problem(f=bp.Sensors(bp.Periodic("u", along="y"), values=0.0, noise=1.0)), r"Periodic along 'y', which is not a coordinate"),
    "periodic coordinate given": (lambda: problem(f=bp.Sensors(bp.Periodic("u", along="x"), {"x": X}, 0.0, 1.0)), r"Periodic fixes x; remove it from at"),
    # equations
    "scalar result": (lambda: problem(f=sensors(lambda u: jnp.mean(u))), r"returned shape \(\) for 5 points; it must return one number per point, an array of shape \(5,\)"),
    "matrix result": (lambda: problem(f=sensors(lambda u: u[:, None] * u)), r"returned shape \(5, 5\) for 5 points"),
    "no result": (lambda: problem(f=sensors(lambda u: None)), r"returned NoneType for 5 points"),
    "two results": (lambda: problem(f=sensors(lambda u: (u, u))), r"returned tuple for 5 points"),
    "integer result": (lambda: problem(f=sensors(lambda u: jnp.ones(5, int))), r"returned int32 numbers; it must return real floats"),
    "complex result": (lambda: problem(f=sensors(lambda u: 1j * u)), r"returned complex64 numbers"),
    "numpy in an equation": (lambda: problem(f=sensors(plain_numpy)), r"JAX cannot trace plain_numpy; use jax.numpy"),
    "if in an equation": (lambda: problem(f=sensors(branching)), r"jnp.where instead of if"),
    "failing equation": (lambda: problem(f=sensors(lambda u: u["a"])), r"sensors 'f': <lambda> failed: TypeError"),
    "points and a vector": (lambda: problem(f=sensors(lambda u: u * jnp.ones(3))), r"write x\[:, None\] to combine x with"),
    # sensors
    "no sensors": (lambda: bp.Problem({"x": (0, 1)}, {"u": bp.MLP()}, sensors={}), r"sensors: none given; give at least one"),
    "sensors is a list": (lambda: bp.Problem({"x": (0, 1)}, {"u": bp.MLP()}, sensors=[sensors()]), r"sensors: expected a dictionary of bp.Sensors by name, got list"),
    "not Sensors": (lambda: problem(u=(X, X)), r"sensors 'u': expected bp.Sensors\(...\), got tuple"),
    "fewer values": (lambda: problem(f=sensors(values=np.zeros(4))), r"sensors 'f': 5 points but 4 values; give one value per point"),
    "columns": (lambda: problem(f=sensors(values=np.zeros((5, 1)))), r"5 points but \(5, 1\) values"),
    "empty": (lambda: problem(f=sensors(at={"x": []}, values=[])), r"sensors 'f': no readings"),
    "NaN values": (lambda: problem(f=sensors(values=with_nan(np.nan))), r"values: 1 of 5 are NaN, masked or infinite \(the first at index 2\); remove those points"),
    "infinite positions": (lambda: problem(f=sensors(at={"x": with_nan(np.inf)})), r"positions of x: 1 of 5 are NaN, masked or infinite"),
    "masked values": (lambda: problem(f=sensors(values=np.ma.masked_greater(X, 0.9))), r"values: [1-4] of 5 are NaN, masked or infinite"),
    "dates": (lambda: problem(f=sensors(at={"x": np.array(["2024-03-01"] * 5, dtype="M8[D]")})), r"positions of x: expected numbers, got dates; convert them to numbers, such as"),
    "huge values": (lambda: problem(f=sensors(values=1e300 * X)), r"values: \S+ is beyond the range of floating point; use units in which it is near 1"),
    "tiny noise": (lambda: problem(f=sensors(noise=1e-60)), r"noise: 1e-60 is beyond the range of floating point"),
    "complex values": (lambda: problem(f=sensors(values=1j * X)), r"values: expected real numbers, got complex ones"),
    "text values": (lambda: problem(f=sensors(values=["a"] * 5)), r"values: expected numbers, got text; convert it with np.asarray"),
    "boolean values": (lambda: problem(f=sensors(values=X > 0.5)), r"values: expected numbers, got truth values \(bool\)"),
    "ragged values": (lambda: problem(f=sensors(values=[[1.0], [1.0, 2.0]])), r"values: expected numbers"),
    "integers beyond float": (lambda: problem(f=sensors(values=np.full(5, 2**40))), r"integers beyond 16777216"),
    "missing coordinate": (lambda: problem(domain={"x": (0, 1), "t": (0, 1)}, f=sensors()), r"sensors 'f': no positions for t; add them to at"),
    "other coordinate": (lambda: problem(f=sensors(at={"x": X, "y": X})), r"'y' is not a coordinate; coordinates are x"),
    "at is an array": (lambda: problem(f=sensors(at=X)), r"at must be a dictionary with an array for each coordinate"),
    "positions differ": (
        lambda: problem(domain={"x": (0, 1), "t": (0, 1)}, f=sensors(at={"x": X, "t": X[:4]})),
        r"positions differ in shape \(x has \(5,\), t has \(4,\)\)",
    ),
    # noise
    "noise missing": (lambda: problem(f=sensors(noise=None)), r"sensors 'f': noise is missing; give the standard deviation of a reading"),
    "noise zero": (lambda: problem(f=sensors(noise=0.0)), r"noise must be positive, got 0; for exact physics give a small tolerance"),
    "noise negative": (lambda: problem(f=sensors(noise=[0.1, 0.1, -0.1, 0.1, 0.1])), r"noise must be positive, got -0.1"),
    "noise of another length": (lambda: problem(f=sensors(noise=[0.1, 0.1])), r"noise: 5 points but 2 noise levels; give one number, or one per point"),
    "noise NaN": (lambda: problem(f=sensors(noise=np.nan)), r"noise: 1 of 1 are NaN"),
    "noise prior on the line": (lambda: problem(f=sensors(noise=dist.Normal(0.0, 1.0))), r"noise: Normal allows negative values; use a positive prior"),
    "noise prior is a vector": (lambda: problem(f=sensors(noise=dist.HalfNormal(jnp.ones(5)))), r"the prior of a noise must be a scalar"),
    "noise names nothing": (lambda: problem(f=sensors(noise="sigma")), r"names 'sigma', which is not an unknown; unknowns are none"),
    "noise names a signed unknown": (lambda: problem(unknowns={"s": dist.Normal()}, f=sensors(noise="s")), r"Normal allows negative values"),
    "likelihood": (lambda: problem(f=sensors(likelihood="cauchy")), r"likelihood 'cauchy' is not known; use one of 'normal', .*'student_t'"),
    "dof": (lambda: problem(f=sensors(likelihood="student_t", dof=-1)), r"dof must be a positive number, got -1"),
    # settings
    "no leapfrog": (lambda: bp.HMC(num_leapfrog=0), r"HMC: num_leapfrog must be a whole number of at least 1, got 0"),
    "draws are a float": (lambda: bp.HMC(num_draws=1e3), r"HMC: num_draws must be a whole number of at least 4, got 1000.0"),
    "no warm-up": (lambda: bp.HMC(num_warmup=0), r"HMC: num_warmup must be a whole number of at least 20"),
    "step size": (lambda: bp.HMC(step_size=-0.1), r"HMC: step_size must be a number between 0 and inf, got -0.1"),
    "target": (lambda: bp.HMC(target_accept=1.5), r"HMC: target_accept must be a number between 0 and 1, got 1.5"),
    "mass": (lambda: bp.HMC(mass="dense"), r"HMC: mass must be one of 'identity', 'diagonal', got 'dense'"),
    "coordinates": (lambda: bp.HMC(coordinates="polar"), r"HMC: coordinates must be one of 'whitened', 'plain', got 'polar'"),
    "coordinates of NUTS": (lambda: bp.NUTS(coordinates=None), r"NUTS: coordinates must be one of 'whitened', 'plain', got None"),
    "start": (lambda: bp.HMC(init="zero"), r"HMC: init must be one of 'anneal', 'map', 'prior', got 'zero'"),
    "jitter": (lambda: bp.HMC(jitter=1.5), r"HMC: jitter must be a number"),
    "keep": (lambda: bp.HMC(keep=0), r"HMC: keep must be a whole number"),
    "depth": (lambda: bp.NUTS(max_tree_depth=0), r"NUTS: max_tree_depth must be a whole number"),
    "family": (lambda: bp.VI(family="full"), r"VI: family must be one of 'mean-field', 'low-rank', 'full-rank', got 'full'"),
    "no rank": (lambda: bp.VI(family="low-rank", rank=0), r"VI: rank must be a whole number of at least 1, got 0"),
    "gradient": (lambda: bp.VI(gradient="none"), r"VI: gradient must be one of 'path', 'total', got 'none'"),
    "no samples": (lambda: bp.VI(num_samples=0), r"VI: num_samples must be a whole number of at least 1, got 0"),
    "few draws": (lambda: bp.VI(num_draws=3), r"VI: num_draws must be a whole number of at least 4, got 3"),
    "start of VI": (lambda: bp.VI(init="prior"), r"VI: init must be one of 'auto', 'small', 'fit', 'laplace', got 'prior'"),
    "no steps": (lambda: bp.VI(num_steps=0), r"VI: num_steps must be a whole number of at least 1, got 0"),
    "steps are a float": (lambda: bp.PINN(num_steps=2e4), r"PINN: num_steps must be a whole number of at least 1, got 20000.0"),
    "learning rate": (lambda: bp.VI(learning_rate=0), r"VI: learning_rate must be a number between 0 and inf, got 0"),
    "schedule": (lambda: bp.PINN(schedule="linear"), r"PINN: schedule must be one of 'cosine', 'constant', got 'linear'"),
    "patience": (lambda: bp.VI(patience=1), r"VI: patience must be a whole number of at least 10, got 1"),
    "loss": (lambda: bp.PINN(loss="mae"), r"PINN: loss must be one of 'mse', 'likelihood', 'posterior', got 'mae'"),
    "polish": (lambda: bp.PINN(polish=-1), r"PINN: polish must be a whole number of at least 0, got -1"),
    "rate": (lambda: bp.Dropout(rate=1.0), r"Dropout: rate must be a number between 0 and 1, got 1.0"),
    "rate in percent": (lambda: bp.Dropout(rate=5), r"Dropout: rate must be a number between 0 and 1, got 5"),
    "last steps": (lambda: bp.Dropout(last=0), r"Dropout: last must be a whole number of at least 1, got 0"),
    "kind": (lambda: bp.Flow(kind="planar"), r"Flow: kind must be one of 'coupling', 'spline', 'potential', got 'planar'"),
    "few last-layer draws": (lambda: bp.LastLayer(num_draws=2), r"LastLayer: num_draws must be a whole number of at least 4, got 2"),
    "last-layer schedule": (lambda: bp.LastLayer(schedule="linear"), r"LastLayer: schedule must be one of 'cosine', 'constant', got 'linear'"),
    "no members": (lambda: bp.Ensemble(members=1), r"Ensemble: members must be a whole number of at least 2, got 1"),
    "anchored": (lambda: bp.Ensemble(anchored="yes"), r"Ensemble: anchored must be True or False, got 'yes'"),
    "steps of an ensemble": (lambda: bp.Ensemble(num_steps=0), r"Ensemble: num_steps must be a whole number of at least 1, got 0"),
    "rank of Laplace": (lambda: bp.Laplace(rank=0), r"Laplace: rank must be a whole number of at least 1, got 0"),
    "coordinates of Laplace": (lambda: bp.Laplace(coordinates="white"), r"Laplace: coordinates must be one of 'whitened', 'plain', got 'white'"),
    "draws of Laplace": (lambda: bp.Laplace(num_draws=1), r"Laplace: num_draws must be a whole number of at least 4, got 1"),
    "few particles": (lambda: bp.SVGD(particles=1), r"SVGD: particles must be a whole number of at least 4, got 1"),
    "an empty batch": (lambda: bp.SGHMC(batch=0), r"SGHMC: batch must be a whole number of at least 1, got 0"),
    "half a batch": (lambda: bp.VI(batch=0.5), r"VI: batch must be a whole number of at least 1, got 0.5"),
    "an unstable step": (lambda: bp.SGHMC(step_size=2.5), r"SGHMC: step_size must be a number between 0 and 2, got 2.5"),
    "learning rate of particles": (lambda: bp.SVGD(learning_rate=-1.0), r"SVGD: learning_rate must be a number between 0 and inf, got -1.0"),
    "few Kalman members": (lambda: bp.EnsembleKalman(members=5), r"EnsembleKalman: members must be a whole number of at least 10, got 5"),
    "no Kalman steps": (lambda: bp.EnsembleKalman(most_steps=0), r"EnsembleKalman: most_steps must be a whole number of at least 1, got 0"),
    "density": (lambda: bp.Flow(density="euler"), r"Flow: density must be one of 'exact', 'laplacian', got 'euler'"),
    "no layers": (lambda: bp.Flow(layers=0), r"Flow: layers must be a whole number of at least 1, got 0"),
    "no hidden layer": (lambda: bp.Flow(hidden=()), r"Flow: hidden must have the width of at least one hidden layer"),
    "hidden is a number": (lambda: bp.Flow(hidden=64), r"Flow: hidden must be widths such as \(64,\), got 64"),
    "unequal widths": (lambda: bp.Flow(hidden=(8, 9)), r"Flow: hidden layers of coupling flows must be equally wide, got hidden=\(8, 9\)"),
    "affine": (lambda: bp.Flow(affine="no"), r"Flow: affine must be True or False, got 'no'"),
    "large flow": (lambda: infer(problem(fields={"u": bp.MLP(hidden=(50, 50))}), bp.Flow()), r"Flow: the problem has 2701 parameters, but a square matrix over the parameters is limited to 2000; use bp.HMC"),
    "dropout of no neurons": (lambda: infer(problem(fields={"u": bp.MLP(hidden=())}), bp.Dropout()), r"Dropout: field 'u' has no hidden neurons to drop; use a network"),
    "dropout of a series": (lambda: infer(problem(fields={"u": bp.KarhunenLoeve(bp.Matern32(length=0.2), terms=3, interval=(0, 1))}), bp.Dropout()), r"Dropout: field 'u' has no hidden neurons"),
    "noise of a fit": (lambda: infer(problem(u=sensors(noise=dist.HalfNormal(1.0))), bp.PINN()), r"PINN: 'noise_u' is to be inferred, which is not possible with loss='mse'; give the noise as a number"),
    "noise by name": (lambda: infer(problem(unknowns={"s": dist.HalfNormal(1.0)}, u=sensors(noise="s")), bp.PINN(loss="likelihood")), r"PINN: 's' is to be inferred, which is not possible with loss='likelihood'"),
    "large full-rank": (lambda: infer(problem(fields={"u": bp.MLP(hidden=(50, 50))}), bp.VI(family="full-rank")), r"VI: the problem has 2701 parameters, but a square matrix over the parameters is limited to 2000; use bp.HMC"),
    "start of no map": (lambda: bp.Flow(affine=False, init="laplace"), r"Flow: init='laplace' initialises the linear map, which affine=False removes; use init='small'"),
    "no hidden": (lambda: bp.Flow(hidden=None), r"Flow: hidden must be widths such as \(64,\), got None"),
    "choices are text": (lambda: bp.VI(family=np.array(["a", "b"])), r"VI: family must be one of"),
    "noise of dropout": (lambda: infer(problem(u=sensors(noise=dist.HalfNormal(1.0))), bp.Dropout()), r"Dropout: 'noise_u' is to be inferred"),
    "a method's class": (lambda: infer(problem(), bp.VI), r"infer: expected a method such as bp.HMC\(\), got .*; call it: bp.VI\(\)"),
    # infer
    "no problem": (lambda: bp.infer("problem", seed=0), r"infer: expected a bp.Problem first, got str"),
    "method is a class": (lambda: bp.infer(problem(), bp.HMC, seed=0), r"infer: expected a method such as bp.HMC\(\).*call it: bp.HMC\(\)"),
    "seed is a float": (lambda: bp.infer(problem(), seed=0.5), r"infer: seed must be a whole number"),
    "seed is negative": (lambda: bp.infer(problem(), seed=-1), r"infer: seed must be a whole number"),
    "no chains": (lambda: bp.infer(problem(), seed=0, chains=0), r"infer: chains must be a positive whole number, got 0"),
    "prior alone": (lambda: bp.infer(bp.Problem({"x": (0, 1)}, {"u": bp.MLP()}), seed=0), r"infer: the problem has no sensors"),
    "out in no folder": (lambda: bp.infer(problem(), seed=0, out="nowhere/at/all.npz"), r"infer: out='nowhere/at/all.npz' must be a file in an existing folder; create the folder first"),
    "math in an equation": (lambda: problem(f=sensors(lambda u: math.sin(u))), r"use jax.numpy instead of numpy or math"),
    "if on an array": (lambda: problem(f=sensors(lambda u: u if u > 0 else -u)), r"jnp.where instead of if"),
    # figures
    **{
        f"{name} of nothing": (lambda draw=draw: draw(None), rf"{name}: expected a Result from bp.infer as first argument, got NoneType")
        for name, draw in {
            "band": lambda r: bp.plot.band(r, "u"), "maps": lambda r: bp.plot.maps(r, "u"), "field": lambda r: bp.plot.field(r, "u"),
            "modes": lambda r: bp.plot.modes(r, "u"), "unknowns": bp.plot.unknowns, "traces": bp.plot.traces,
            "history": bp.plot.history, "overview": bp.plot.overview,
        }.items()
    },
    # the prior
    "prior of no problem": (lambda: bp.prior.predict("problem", "u", {"x": X}), r"prior 'u': expected a bp.Problem first, got str"),
    "covariance of no problem": (lambda: bp.prior.covariance("problem", "u", {"x": X}), r"prior 'u': expected a bp.Problem first, got str"),
    "prior of nothing": (lambda: bp.prior.predict(problem(), "w", {"x": X}), r"prior 'w': 'w' is not known"),
    "prior nowhere": (lambda: bp.prior.covariance(problem(), "u"), r"prior 'u': no positions for x; add them to at"),
    "one prior draw": (lambda: bp.prior.covariance(problem(), "u", {"x": X}, draws=1), r"prior 'u': draws must be a whole number of at least 2, got 1"),
    "prior draws are a float": (lambda: bp.prior.predict(problem(), "u", {"x": X}, draws=1e4), r"prior 'u': draws must be a whole number of at least 2, got 10000.0"),
    "prior seed": (lambda: bp.prior.predict(problem(), "u", {"x": X}, seed=-1), r"prior 'u': seed must be a whole number from 0 to 2\*\*32 - 1, got -1"),
    "gp of a network equation": (lambda: bp.reference.gp(problem(f=sensors(lambda u: u**2)), at={"x": X}), r"gp: sensors 'f': <lambda> is not linear"),
    "z of another length": (lambda: bp.Posterior(problem()).evaluate(np.zeros(3), "u", {"x": X}), r"evaluate 'u': z has shape \(3,\); expected \(10,\) or \(n, 10\)"),
    "paper noise": (lambda: bp.paper.regression(noise=0.0), r"bp.paper: noise must be a positive number, got 0.0"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_call_gets_a_clear_sentence(call, words):
    with pytest.raises(bp.InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def result():
    method = bp.HMC(num_warmup=20, num_draws=4, num_leapfrog=2)
    given = problem(
        unknowns={"k": dist.Normal()},
        u=sensors(noise=np.linspace(0.1, 0.2, 5)),
        f=sensors("u_x"),
        q=sensors(lambda u, k: k * u),
    )
    return bp.infer(given, method, seed=0, chains=1, progress=False)


ASKED = {
    "unknown quantity": (lambda r: r.predict("w", {"x": X}), r"predict 'w': 'w' is not known"),
    "no positions": (lambda r: r.predict("u"), r"predict 'u': no positions for x"),
    "no points": (lambda r: r.predict("u", {"x": []}), r"predict 'u': no points"),
    "other coordinate": (lambda r: r.predict("u", {"y": X}), r"'y' is not a coordinate"),
    "NaN position": (lambda r: r.predict("u", {"x": [np.nan]}), r"are NaN"),
    "wrong function": (lambda r: r.predict(lambda q: q, {"x": X}), r"'q' is not known"),
    "wrong shape": (lambda r: r.predict(lambda u: u.sum(), {"x": X}), r"it must return one number"),
    "varying noise": (lambda r: r.predict("u", {"x": X}, noise=True), r"have different noise; give the standard deviation"),
    "noise of nothing": (lambda r: r.predict("u_xx", {"x": X}, noise=True), r"no sensors measure it"),
    "noise of other sensors": (lambda r: r.predict("u", {"x": X}, noise="g"), r"no sensors called 'g'; known sensors: u, f, q"),
    "negative noise": (lambda r: r.predict("u", {"x": X}, noise=-0.1), r"noise must be positive"),
    "interval": (lambda r: r.predict("u", {"x": X}).interval(95), r"interval: p must lie between 0 and 1, such as 0.95, got 95"),
    "quantile": (lambda r: r.predict("u", {"x": X}).quantile(2), r"quantile: p must lie between 0 and 1"),
    "draws of a field": (lambda r: r.draws("u"), r"'u' is neither an unknown nor an inferred noise \(known: k\); use predict"),
    "summary": (lambda r: r.summary(95), r"summary: p must lie between 0 and 1"),
    "grid": (lambda r: r.problem.grid(y=3), r"grid: 'y' is not a coordinate"),
    "a folder": (lambda r: r.save("."), r"save: . is a folder"),
    "load a folder": (lambda r: bp.load("."), r"load: . is a folder"),
    "folder": (lambda r: r.save("nowhere/at/all.npz"), r"save: the folder nowhere/at does not exist"),
}  # fmt: skip


@pytest.mark.parametrize(("ask", "words"), ASKED.values(), ids=ASKED.keys())
def test_a_wrong_question_gets_a_clear_sentence(result, ask, words):
    with pytest.raises(bp.InputError, match=words):
        ask(result)


def test_readings_with_more_digits_than_single_precision_are_warned_about():
    words = (
        "sensors 'u': a reading of 1e\\+06 with a noise of 0.1 has more digits than single precision holds; subtract"
    )
    with pytest.warns(bp.BpinnWarning, match=words):
        problem(u=sensors(values=np.full(5, 1e6)))
    problem(u=sensors(values=np.full(5, 1e5)))
    problem(u=sensors(values=np.full(5, 1e6), likelihood=bp.likelihoods.LogNormal()))  # a relative noise
    with jax.enable_x64(True):
        problem(u=sensors(values=np.full(5, 1e6)))


def test_points_outside_the_domain_are_warned_of():
    with pytest.warns(bp.BpinnWarning, match=r"sensors 'f': 2 of 5 positions of x lie outside the domain \[0, 1\]"):
        problem(f=sensors(at={"x": [-0.5, 0.0, 0.5, 1.0, 1.5]}))


def test_rounding_at_the_edge_is_not_outside():
    problem(f=sensors(at={"x": [0.0, 0.1 + 0.2, 0.5, 0.9, 1.0 + 1e-12]}))


def test_integers_and_lists_are_numbers():
    given = problem(f=bp.Sensors("u", {"x": [0, 1]}, [1, 2], noise=1))
    np.testing.assert_array_equal(given.readings[0].values, [1.0, 2.0])
    assert given.readings[0].values.dtype == float


@pytest.mark.parametrize("method", [bp.HMC(num_warmup=20, num_draws=4, num_leapfrog=2), bp.HMC(most_draws=200)])
def test_a_density_that_is_never_finite_is_reported(method):
    given = problem(f=sensors(lambda u: jnp.log(-1.0 - u**2)))
    with pytest.raises(bp.InputError, match=r"the log density is not finite at any draw; check the equations"):
        bp.infer(given, method, seed=0, chains=1, progress=False)
