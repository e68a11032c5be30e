from optfair.compile.cone_program import ConeProgram as ConeProgram
from optfair.compile.pyomo import pyomo_values as pyomo_values
from optfair.compile.pyomo import to_pyomo as to_pyomo
