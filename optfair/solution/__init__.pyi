from optfair.solution.residuals import Residuals as Residuals
