from optfair.comparison.compare import ConfiguredSolver as ConfiguredSolver
from optfair.comparison.compare import compare_solvers as compare_solvers
from optfair.comparison.comparison import Comparison as Comparison
from optfair.comparison.figures import Accuracy as Accuracy
from optfair.comparison.figures import PerformanceProfile as PerformanceProfile
from optfair.comparison.figures import shifted_geometric_mean as shifted_geometric_mean
from optfair.comparison.run import Run as Run
