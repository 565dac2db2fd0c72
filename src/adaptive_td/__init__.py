"""Value functions from logged episodes, with an interval for every state."""

from . import intervals, metrics, problems, targets
from .adapters import load, save
from .adapters.gym import collect
from .check import check
from .episodes import Episodes
from .errors import AdaptiveTDError, DataError, Diverged, UsageError
from .fitting import Fit, fit, fit_many
from .intervals import Interval
from .jobs import Training
from .methods import TD, AdaptiveTD, MonteCarlo, MonteCarloEnsemble, NStepTD, TDLambda
from .models import MLP, Grid, Linear, NatureCNN, Table
from .training import EngineReport, engine_report
from .uncertainty import Ensemble
from .value import Diagnostics, ValueFunction

__version__ = "0.1.0"

__all__ = [
    "MLP",
    "TD",
    "AdaptiveTD",
    "AdaptiveTDError",
    "DataError",
    "Diagnostics",
    "Diverged",
    "EngineReport",
    "Ensemble",
    "Episodes",
    "Fit",
    "Grid",
    "Interval",
    "Linear",
    "MonteCarlo",
    "MonteCarloEnsemble",
    "NStepTD",
    "NatureCNN",
    "TDLambda",
    "Table",
    "Training",
    "UsageError",
    "ValueFunction",
    "check",
    "collect",
    "engine_report",
    "fit",
    "fit_many",
    "intervals",
    "load",
    "metrics",
    "problems",
    "save",
    "targets",
]
