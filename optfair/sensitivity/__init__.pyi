from optfair.sensitivity.sweep_result import Point as Point
from optfair.sensitivity.sweep_result import Sweep as Sweep
from optfair.sensitivity.sweeps import sweep as sweep
from optfair.sensitivity.value_function import Dependence as Dependence
from optfair.sensitivity.value_function import dependence as dependence
