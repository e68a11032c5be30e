from optfair.sweeps.along import sweep as sweep
from optfair.sweeps.ranges import Range as Range
from optfair.sweeps.ranges import Ranges as Ranges
from optfair.sweeps.ranges import sensitivity as sensitivity
from optfair.sweeps.sweep_result import Point as Point
from optfair.sweeps.sweep_result import Sweep as Sweep
from optfair.sweeps.value_function import Dependence as Dependence
from optfair.sweeps.value_function import dependence as dependence
