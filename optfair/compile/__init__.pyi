from optfair.compile.export import ConeProgram as ConeProgram
from optfair.compile.export import pyomo_values as pyomo_values
from optfair.compile.export import to_pyomo as to_pyomo
